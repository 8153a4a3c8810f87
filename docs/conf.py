"""How Sphinx builds these pages: `sphinx-build -W --keep-going -q docs runs/docs`."""

import importlib.metadata
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

project = "vlcpctl"
author = "The vlcpctl authors"
copyright = "The vlcpctl authors, Apache-2.0"
release = importlib.metadata.version("vlcpctl")
extensions = ["myst_parser", "sphinx.ext.mathjax", "sphinx_copybutton", "_generate.pages"]
myst_fence_as_directive = ["math"]  # as GitHub shows it
myst_enable_extensions = ["dollarmath"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3
smartquotes = False
html_theme = "furo"
html_title = f"vlcpctl {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e4f", "color-brand-content": "#0b6e4f"},
    "dark_css_variables": {"color-brand-primary": "#5fd3a8", "color-brand-content": "#5fd3a8"},
}
