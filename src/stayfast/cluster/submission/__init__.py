"""A rendered bundle put into a cluster: linted, tried by the server, applied; applied twice it changes nothing.

May import: capacity, render, lint, kubernetes, observed, diagnosis.
Start reading: ``prepare.py``.
"""
