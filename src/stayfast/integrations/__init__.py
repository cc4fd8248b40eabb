"""Glue for frameworks; each module loads its framework only when it is imported, and nobody imports these."""
