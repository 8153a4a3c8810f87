"""The training loop, its phases, checkpoints and exact resume."""
