"""``stayfast demo``: real work under a storm of real signals on this machine, and the proof that nothing was lost.

May import: the public library, batch, model.
Start reading: ``storm.py``.
"""
