"""Run a model once for later commands: targets, pseudo texts, labels, features."""
