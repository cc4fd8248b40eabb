"""Why a workload does not run: one answer per run from a snapshot; read by explain, status, watch and the dashboard.

May import: observed, model, text; neither kubernetes nor lint.
Start reading: ``diagnose.py``.
"""
