"""HTTP with a pool of connections, URLs taken apart, and Google's access tokens.

May import: errors, clock, filesystem.
Start reading: ``transport.py``.
"""
