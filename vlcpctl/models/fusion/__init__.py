"""Fusion models: an image encoder, and a text encoder whose second half attends to the image."""
