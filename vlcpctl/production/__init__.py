"""A model in production that is updated every week, and its state directory."""
