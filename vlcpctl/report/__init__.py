"""The forgetting report: evaluation rows in; tables, charts and an HTML page out."""
