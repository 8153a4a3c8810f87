"""The report as text for the terminal, as Markdown and as HTML."""
