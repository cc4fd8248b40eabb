"""Inside the program: notices, the grace budget, the drain, and the exit contract."""
