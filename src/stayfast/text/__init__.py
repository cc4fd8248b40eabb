"""Text for people: safe to print, units, suggestions, files that a user names, progress. No domain knowledge.

May import: model, errors.
Start reading: ``units.py``.
"""
