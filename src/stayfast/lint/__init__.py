"""What Spot and flex-start would do to these manifests, before they do it.

Profile first, rules second: every pod template is classified (which capacity, which accelerator, coupled or not, queued
or not), and the rules judge it by that profile.

May import: capacity.machines, documents, text, model; not render.
Start reading: ``engine.py``.
"""
