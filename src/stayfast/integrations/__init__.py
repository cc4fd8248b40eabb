"""Glue for Lightning, Transformers, DCP and plain PyTorch; no other chapter imports it. Each loads its framework.

May import: runtime.
Start reading: ``torch.py``.
"""
