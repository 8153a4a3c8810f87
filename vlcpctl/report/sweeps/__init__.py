"""Sweeps: runs grouped by their settings, and the best setting on the validation split."""
