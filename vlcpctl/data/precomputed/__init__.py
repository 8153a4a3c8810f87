"""Vectors that a model made before: targets, stored features, pseudo texts."""
