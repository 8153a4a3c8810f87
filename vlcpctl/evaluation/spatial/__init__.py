"""Angles between the embeddings of two checkpoints."""
