"""`check` and `inspect`: any artifact, its damage and its lineage."""
