"""One module per layer that can hold a workload up; each is pure: what was observed in, an explanation or nothing out."""
