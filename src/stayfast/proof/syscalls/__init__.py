"""System calls of a watched program: held, looked at, answered; and the fallback where they cannot be held.

May import: process, runtime.directory_sync.inotify, the ground.
Start reading: ``watcher.py``.
"""
