"""Models that vlcpctl trains: the dual encoder."""
