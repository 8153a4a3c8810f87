"""Checkpoints on disk: write, read, check, import and merge them."""
