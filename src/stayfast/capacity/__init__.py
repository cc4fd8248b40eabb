"""The chapter of the decision: what the user wants, what Google sells, where to be next, what that would have cost.
Pure, but for the price list: ``machines/price_file`` reads the user's, ``machines/billing_api`` downloads a new one.

May import: documents, text, model, the ground.
Start reading: ``plan/planner.py``.
"""
