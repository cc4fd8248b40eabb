"""Work queues: lease small chunks, settle each item once. One module per backend.

May import: sink, storage, the ground.
Start reading: ``protocol.py``.
"""
