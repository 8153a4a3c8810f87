"""Evaluations: a checkpoint and a task in, rows of numbers out.

Each kind is an `Evaluator`: its plan checks the inputs and names the rows without torch, so that
--dry-run is quick, and its `measure` has the numbers of one row.
"""
