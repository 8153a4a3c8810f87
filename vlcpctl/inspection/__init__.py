"""`vlcpctl check` and `inspect`: damage in artifacts of any kind, and their lineage."""
