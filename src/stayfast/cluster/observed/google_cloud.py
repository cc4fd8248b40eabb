"""What only ``gcloud`` knows: asked without a shell, within a time, and never required."""

from __future__ import annotations

import json
import os
from typing import Any

from stayfast.errors import ClusterAccessError, ClusterConfigError, ClusterUnreachableError
from stayfast.text.safe import line, redact

GCLOUD_SECONDS = 30.0


def gcloud_json(*arguments: str) -> Any:
    """The answer of ``gcloud … --format=json``."""
    import subprocess

    command = ["gcloud", *arguments, "--format=json", "--quiet"]
    environment = {**os.environ, "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
    try:
        ended = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=GCLOUD_SECONDS, check=False
        )
    except FileNotFoundError:
        raise ClusterConfigError("gcloud is not installed", help="see https://cloud.google.com/sdk") from None
    except subprocess.TimeoutExpired:
        raise ClusterUnreachableError(f"gcloud did not answer within {GCLOUD_SECONDS:.0f} s") from None
    except (OSError, ValueError) as error:
        raise ClusterConfigError(f"gcloud cannot be started ({error})") from None
    if ended.returncode != 0:
        said = [text for text in ended.stderr.decode("utf-8", "replace").splitlines() if text.strip()]
        last = f": {line(redact(said[-1][:300]))}" if said else ""
        what = " ".join(arguments[:3])
        raise ClusterAccessError(f"gcloud {what} failed{last}", help="run: gcloud auth login, then try again")
    try:
        return json.loads(ended.stdout)
    except (ValueError, RecursionError):
        raise ClusterUnreachableError(f"gcloud {' '.join(arguments[:3])} printed something that is no JSON") from None


def region_of(location: str) -> str:
    """``us-central1-a`` is in ``us-central1``."""
    parts = location.split("-")
    return "-".join(parts[:2]) if len(parts) == 3 and len(parts[2]) == 1 else location
