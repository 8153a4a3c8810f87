"""Cross-modal and multi-modal retrieval."""
