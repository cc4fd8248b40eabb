"""Measured durations, the tables of metrics, the Prometheus text and its server, spans. Knows no run and no pool: the
rooms above hand it numbers.

May import: model, the ground.
Start reading: ``metric_table.py``.
"""
