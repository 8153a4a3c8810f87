"""From rows to scores: the matrices of each run, and their summaries."""
