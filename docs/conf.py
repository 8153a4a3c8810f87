"""How Sphinx builds these pages: `sphinx-build -W --keep-going -q docs runs/docs`."""

project = "vlcpctl"
author = "The vlcpctl authors"
copyright = "The vlcpctl authors, Apache-2.0"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3
smartquotes = False
html_theme = "furo"
html_title = "vlcpctl"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e4f", "color-brand-content": "#0b6e4f"},
    "dark_css_variables": {"color-brand-primary": "#5fd3a8", "color-brand-content": "#5fd3a8"},
}
