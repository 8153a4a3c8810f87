"""Inline SVG charts: lines over steps, task x step heat maps, bars per task, histograms."""
