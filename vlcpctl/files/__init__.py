"""Files: written whole or not at all, named by their content, read with limits."""
