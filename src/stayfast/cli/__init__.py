"""The command line: one module per command, loaded only when it is the one that was typed.

May import: every room.
Start reading: ``commands.py``.
"""
