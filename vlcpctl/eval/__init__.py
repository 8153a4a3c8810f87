"""Evaluators: a checkpoint and a task in, rows out."""
