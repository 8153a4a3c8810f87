"""`vlcpctl split`: from the pairs of sources to a stream of tasks."""
