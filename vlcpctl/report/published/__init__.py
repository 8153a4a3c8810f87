"""Tables of published papers: their printed values beside those of rows."""
