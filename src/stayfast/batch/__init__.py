"""The chapter of many small items: the queue they wait in, the sink their results go to, the workers between.

May import: runtime, storage, telemetry, process, model, the ground.
Start reading: ``worker/worker.py``.
"""
