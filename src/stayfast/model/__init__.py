"""Plain values and names that the pod and the control side share: causes, notices, exit codes, capacity classes,
labels, names of variables, the age of a queue. No input or output.

May import: errors.
Start reading: ``exit_codes.py``.
"""
