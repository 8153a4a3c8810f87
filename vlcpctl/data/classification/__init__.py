"""Labelled images for zero-shot and probe: folders, tasks and benchmarks."""
