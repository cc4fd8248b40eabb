"""A program's state as a JSON tree and raw arrays and back; what a run tracks; an adapter per array library.

May import: the ground.
Start reading: ``tracked_state.py``.
"""
