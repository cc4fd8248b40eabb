"""Where bytes live: the ``Store`` protocol and one module per place.

May import: network, model, the ground.
Start reading: ``protocol.py``.
"""
