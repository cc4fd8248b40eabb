"""What the API server would refuse: a strict walk over published schemas.

May import: documents, text.
Start reading: ``validator.py``.
"""
