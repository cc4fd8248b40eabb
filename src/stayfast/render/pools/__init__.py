"""Node pools: which are needed, and how gcloud and Terraform make them.

May import: what render may import.
Start reading: ``pool.py``.
"""
