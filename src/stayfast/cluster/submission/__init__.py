"""From a file to objects in a cluster: plan, render, lint, try, apply; twice changes nothing.

May import: capacity, render, lint, kubernetes, observed, diagnosis.
Start reading: ``prepare.py``.
"""
