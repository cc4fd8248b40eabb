"""From a workload to a choice of capacity, with reasons, money and time."""
