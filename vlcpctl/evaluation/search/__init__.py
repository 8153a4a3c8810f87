"""Exact nearest-neighbour search, with ranks that do not depend on the backend."""
