"""What a report knows, as one table of facts, and the language that selects from it."""
