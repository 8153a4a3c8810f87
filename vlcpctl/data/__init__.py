"""Tasks, shards, their index, and the order they are read in."""
