"""Checkpoints on disk: write, read, check, import and interpolate them."""
