"""Where bytes live: one narrow protocol, and what implements it."""
