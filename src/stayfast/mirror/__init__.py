"""A directory kept in a store: copies that are complete or invisible, and the way back before a program starts."""
