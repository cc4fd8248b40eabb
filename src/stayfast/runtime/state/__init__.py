"""A program's state as a JSON tree and raw arrays and back; what a run tracks; one module per array framework.

May import: the ground.
Start reading: ``tracked_state.py``.
"""
