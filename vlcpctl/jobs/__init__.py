"""`vlcpctl batch`: the lines of a script, and the processes that carry them out."""
