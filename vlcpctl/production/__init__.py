"""A model in production: a state directory, and the weekly update of the model in it."""
