"""The Kubernetes objects of a bundle, one module per kind of object.

May import: what render may import.
Start reading: ``workload.py``.
"""
