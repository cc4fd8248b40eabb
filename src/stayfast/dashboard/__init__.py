"""Runs, checkpoints, queues, money and the cluster in a browser. The only asynchronous room; keeps no database.

May import: everything below cli; Starlette and uvicorn.
Start reading: ``routes.py``.
"""
