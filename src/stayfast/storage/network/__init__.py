"""One HTTP client with a pool of connections, URLs taken apart once, and Google's token service.

May import: errors, clock, filesystem.
Start reading: ``transport.py``.
"""
