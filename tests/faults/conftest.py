"""Fault suites share plain modules in this folder; pytest puts it on the path."""
