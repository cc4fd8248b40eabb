"""A directory kept in a store for a program that knows nothing of it: what may be copied, copying it, bringing it back.

May import: checkpoint, run_record, storage.stores, the ground.
Start reading: ``sync.py``.
"""
