"""What a SIGTERM does to a program: who receives it, when each process ends, and what a Job makes of it."""
