"""``HEAD.json``: what a run is, who owns it, which checkpoints exist, what it has cost.

May import: storage.stores, model, the ground.
Start reading: ``record.py``.
"""
