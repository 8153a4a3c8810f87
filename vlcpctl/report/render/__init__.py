"""The report's looks: terminal, Markdown and HTML."""
