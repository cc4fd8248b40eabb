"""Work queues: lease small chunks, settle them once; nothing lost, nothing doubled."""
