"""The two SQL databases that queues and sinks share: opened one way, errors translated one way, schemas migrated one
way.

May import: network.urls, the ground.
Start reading: ``sqlite.py``.
"""
