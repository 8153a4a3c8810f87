"""Which samples a buffer keeps: features or hashes in, indices out."""
