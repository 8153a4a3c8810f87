"""The training loop, its state and exact resume."""
