"""The chapter of what runs inside the pod beside a user's loop: notices, state, checkpoints, the run, ``exec``.

May import: storage, process, telemetry, model, the ground.
Start reading: ``runs/run.py``.
"""
