"""Models that vlcpctl trains: the dual encoder and the fusion model."""
