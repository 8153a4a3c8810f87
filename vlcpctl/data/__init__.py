"""Data on disk: sources are split into tasks, and tasks are read as batches."""
