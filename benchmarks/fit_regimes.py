"""Fit the bundled capacity regimes to a trace file.

python benchmarks/fit_regimes.py TRACES > src/stayfast/capacity/policies/regimes.json
"""

from __future__ import annotations

import sys
from pathlib import Path

from regime_fit import fit_regimes, to_json

from stayfast.capacity.replay.traces import Trace, read_traces

SOURCE = (
    "fitted by stayfast to public traces: skypilot-org/spot-traces 221da1a (AWS V100, 2023; Apache-2.0) and the raw "
    "probes of andylizf/skynomad-artifact (GCP H100, October 2025; Apache-2.0); events per hour by age of the spell"
)


def histories(traces: list[Trace]) -> list[tuple[Trace, int]]:
    """Traces of at least 100 h at their own gang size; the GCP counts also for a gang of 4."""
    rows = [(trace, trace.nodes) for trace in traces if trace.hours >= 100]
    return rows + [(trace, 4) for trace in traces if trace.hours >= 100 and trace.nodes == 16 and "gcp" in trace.id]


if __name__ == "__main__":
    known = read_traces(Path(sys.argv[1]).read_text(), sys.argv[1])
    sys.stdout.write(to_json(fit_regimes(histories(known)), SOURCE))
