"""What runs forgot and gained since they learned each task: queries, confusions, pictures."""
