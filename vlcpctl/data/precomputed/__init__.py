"""Files of precomputed vectors: teacher targets, stored features, pseudo texts."""
