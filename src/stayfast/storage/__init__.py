"""The chapter of everything that lies outside the process: HTTP, object stores, SQL databases.

May import: see each room.
Start reading: ``stores/protocol.py``.
"""
