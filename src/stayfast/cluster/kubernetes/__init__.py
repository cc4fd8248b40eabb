"""The Kubernetes API server, narrowly: find it, log in, read, watch, apply. Dictionaries in and out.

May import: storage.network, documents, text, errors.
Start reading: ``client.py``.
"""
