"""The Kubernetes API server, through a narrow client of our own: plain dictionaries in and out, strict on both ways."""
