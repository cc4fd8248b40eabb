"""Glue for Lightning, Transformers, DCP and plain PyTorch. Imported by nobody; each loads its framework at import.

May import: runtime.
Start reading: ``torch.py``.
"""
