"""The chapter of the decision: what the user wants, what Google sells, where to be next, what that would have cost.
Pure: no input or output but files that come with the package.

May import: documents, text, model, the ground.
Start reading: ``plan/planner.py``.
"""
