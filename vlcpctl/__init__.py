"""Continual vision-language pretraining from the command line."""

__version__ = "0.2.0"
