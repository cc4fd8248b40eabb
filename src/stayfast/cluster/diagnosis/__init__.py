"""Why a workload does not run: one answer, with its evidence, from a snapshot.

May import: observed, kubernetes, model, text.
Start reading: ``diagnose.py``.
"""
