"""What Linux says about processes, read in ``proc.py`` alone, and how a program is started as a container starts it.
Shared by exec, doctor, rehearse and the worker pool.

May import: the ground.
Start reading: ``container.py``.
"""
