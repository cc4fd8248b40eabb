"""How findings are written: text for people, and the formats of the tools around them.

May import: lint.
Start reading: ``text.py``.
"""
