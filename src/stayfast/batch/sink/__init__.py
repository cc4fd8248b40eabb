"""Where results go: writing twice is writing once. One module per backend.

May import: storage, the ground.
Start reading: ``protocol.py``.
"""
