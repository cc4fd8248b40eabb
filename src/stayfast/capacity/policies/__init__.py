"""Where to be next: spot, flex-start, on-demand or wait. One object per policy; pure.

May import: machines, model, text; NumPy when used.
Start reading: ``policy.py``.
"""
