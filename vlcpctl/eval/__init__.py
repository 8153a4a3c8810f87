"""Evaluation of embeddings: search, ranks, retrieval, classification, angles, rows."""
