"""Logging of training steps and evaluation rows to TensorBoard and Weights & Biases (--log)."""
