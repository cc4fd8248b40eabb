"""``stayfast exec``: the outside half of the exit contract for any program. Must stay importable without dataclasses.

May import: interruption, process, directory_sync (when used), model.
Start reading: ``supervisor.py``.
"""
