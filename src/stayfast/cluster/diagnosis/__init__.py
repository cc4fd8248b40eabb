"""Why a workload does not run: one answer, with its evidence, from a snapshot.

May import: observed, kubernetes, capacity.machines, model, text, registry.
Start reading: ``diagnose.py``.
"""
