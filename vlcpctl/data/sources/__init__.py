"""Readers of pairs: one module per format, each yielding `Pair`s in batches."""
