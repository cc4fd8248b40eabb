"""What a SIGTERM does to a program: by running it, or by its manifest's text.

May import: process, lint, documents, model.
Start reading: ``observer.py``.
"""
