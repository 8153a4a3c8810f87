"""Zero-shot accuracy and linear probes."""
