"""What the rules look at: objects, workloads, pods, containers, pools, and all of one folder together.

May import: documents, capacity.machines.
Start reading: ``objects.py``.
"""
