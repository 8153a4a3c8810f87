"""`vlcpctl batch`: the command lines of a script, and the processes that run them."""
