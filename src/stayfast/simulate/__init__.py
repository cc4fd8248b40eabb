"""Replaying capacity histories through policies: many windows, and the summary of them."""
