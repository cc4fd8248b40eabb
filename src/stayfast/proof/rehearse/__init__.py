"""Take the machine away from the user's own program at the worst moments, and prove that the result is the same.

May import: syscalls, process, model, text.
Start reading: ``rehearsal.py``.
"""
