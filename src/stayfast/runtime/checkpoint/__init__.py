"""From a state to durable parts in a store and back, verified; when to save, what to keep, what to delete.

May import: state, run_record, storage.stores, the ground.
Start reading: ``checkpointer.py``.
"""
