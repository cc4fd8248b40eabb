"""One module per layer that can hold a workload up; pure: what was observed in, a diagnosis or nothing out.

May import: what diagnosis may import.
Start reading: ``scheduling.py``.
"""
