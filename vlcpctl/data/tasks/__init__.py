"""A task on disk: tar shards, their index and the manifest."""
