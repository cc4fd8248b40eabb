"""Sinks: where results go; recording twice is recording once."""
