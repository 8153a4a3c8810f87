"""What several methods share: anchoring, measuring importances, following the path of a step."""
