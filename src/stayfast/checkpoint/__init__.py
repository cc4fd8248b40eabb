"""State that outlives the machine: the commit protocol, the format, and the engine that fills it."""
