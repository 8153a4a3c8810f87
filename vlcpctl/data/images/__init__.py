"""Image files: their headers, and the transforms from bytes to pixels."""
