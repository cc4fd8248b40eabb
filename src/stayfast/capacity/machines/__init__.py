"""What Google sells: machines, accelerators and prices. Facts with a date, no decisions.

May import: model, text, errors.
Start reading: ``machine.py``.
"""
