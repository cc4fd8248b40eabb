"""``@stayfast.task`` and ``stayfast work``: claim, compute, record, acknowledge, release.

May import: queue, sink, runtime.interruption, telemetry.
Start reading: ``worker.py``.
"""
