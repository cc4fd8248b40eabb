"""From a plan to files that can be applied. Values in, texts out.

May import: capacity, documents, text, model; not lint.
Start reading: ``bundle.py``.
"""
