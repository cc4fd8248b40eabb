"""``stayfast.run``: one attempt of a run from claim to exit, alone or as one rank of many.

May import: interruption, checkpoint, state, run_record, storage.stores, telemetry.
Start reading: ``run.py``.
"""
