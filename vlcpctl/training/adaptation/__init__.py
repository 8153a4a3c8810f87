"""Settings that depend on the data, the device and the previous checkpoint."""
