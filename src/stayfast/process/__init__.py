"""What Linux says about processes, and how a program is started as a container starts it. Shared by exec, doctor and
rehearse.

May import: the ground.
Start reading: ``container.py``.
"""
