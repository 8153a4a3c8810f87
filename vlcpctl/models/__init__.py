"""The models that vlcpctl trains: dual encoders and fusion models."""
