"""What Google sells: machines, accelerators, prices, the keys of GKE. Facts with a date, no decisions.

May import: model, text, errors.
Start reading: ``machine.py``.
"""
