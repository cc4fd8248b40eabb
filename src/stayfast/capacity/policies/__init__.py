"""Where to be next: spot, flex-start, on-demand or wait. Pure.

May import: machines, model, text; NumPy when used.
Start reading: ``policy.py``.
"""
