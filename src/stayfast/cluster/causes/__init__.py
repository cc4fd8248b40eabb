"""One module per layer that can hold a workload up; pure: what was observed in, an explanation or nothing out."""
