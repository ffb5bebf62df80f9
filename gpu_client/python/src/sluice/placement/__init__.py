"""Finds this process's rank and the number of ranks in the environment."""
