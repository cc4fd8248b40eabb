"""Recorded or made-up capacity histories, and what a policy would have cost on them. Pure.

May import: policies, machines, text; NumPy when used.
Start reading: ``engine.py``.
"""
