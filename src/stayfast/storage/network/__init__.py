"""HTTP with a pool of connections, URLs taken apart, Google's metadata server and access tokens.

May import: the ground.
Start reading: ``transport.py``.
"""
