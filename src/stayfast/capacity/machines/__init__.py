"""What Google sells: machines, accelerators, prices, and the keys and limits of GKE. Facts with a date, no decisions.

May import: model, text, errors.
Start reading: ``machine.py``.
"""
