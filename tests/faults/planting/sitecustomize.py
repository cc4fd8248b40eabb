"""Put this folder first on ``PYTHONPATH`` and name a bug in ``STAYFAST_PLANTED_BUG``: every Python then has it."""

import os
import sys

if os.environ.get("STAYFAST_PLANTED_BUG"):
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from faults import planted

    sys.path.pop(0)
    planted.install(os.environ["STAYFAST_PLANTED_BUG"])
