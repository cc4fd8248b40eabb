"""The chapter of a live cluster: talk to it, see what is there, say why it waits, put work in, watch over it.

May import: render, lint, capacity, storage, documents, text, model, the ground.
Start reading: ``observed/snapshot.py``.
"""
