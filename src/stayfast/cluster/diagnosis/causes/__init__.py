"""One module per layer that can hold a workload up; pure: what was observed in, an explanation or nothing out.

May import: what diagnosis may import.
Start reading: ``scheduling.py``.
"""
