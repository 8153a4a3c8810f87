"""Evaluations: a checkpoint and a task in, rows of numbers out."""
