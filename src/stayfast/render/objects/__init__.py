"""The Kubernetes objects of a bundle: one module per kind of object, and the table of the files that hold them.

May import: what render may import.
Start reading: ``order.py``.
"""
