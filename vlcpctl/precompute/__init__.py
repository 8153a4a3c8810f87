"""What later commands need of a model: targets, pseudo texts, labels, features."""
