"""The nouns that every layer shares: errors, rows, artifacts, ids, seeds, the method protocol."""
