"""Continual vision-language pretraining from the command line."""

__version__ = "0.3.0.dev0"
