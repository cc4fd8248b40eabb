"""Which capacity, why, at what cost, by when, and what that obliges render and watch to do.

May import: spec, machines, policies, replay, text.
Start reading: ``planner.py``.
"""
