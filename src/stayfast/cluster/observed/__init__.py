"""What is in the cluster at one moment: objects, runs, endings of pods, capabilities. Reads; never decides or writes.

May import: kubernetes, capacity.machines, model, text; run_records alone: runtime, batch, storage.
Start reading: ``snapshot.py``.
"""
