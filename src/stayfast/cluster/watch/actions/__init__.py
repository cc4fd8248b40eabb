"""What the watch may do by itself: one module per kind of trouble, each a pure function from what is observed.

May import: what watch may import.
Start reading: ``action.py``.
"""
