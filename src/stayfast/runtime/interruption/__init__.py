"""Every warning becomes one ``Notice`` with a deadline; the time left is spent in order; the exit follows the contract.

May import: telemetry, storage.network, model, the ground.
Start reading: ``guard.py``.
"""
