"""Exports: tasks as data sets of other programs, and checkpoints as model repositories."""
