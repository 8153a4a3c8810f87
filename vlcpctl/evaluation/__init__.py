"""Evaluations: a checkpoint and a task in, rows of numbers out.

Each kind is a pair of modules: a plan (`plan`, `probe_plan`, ...) checks the inputs and names the
rows without torch, so that --dry-run is quick, and an `Evaluator` measures the rows.
"""
