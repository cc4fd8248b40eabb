"""Accelerators, machine shapes and prices: a small dated file of facts, and the way to make a new one."""
