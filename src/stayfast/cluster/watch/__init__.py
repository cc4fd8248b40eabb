"""A watch over all runs: look, compare, tell, act. Time and cluster come from outside.

May import: diagnosis, observed, kubernetes, capacity.policies, storage.network, telemetry.
Start reading: ``watcher.py``.
"""
