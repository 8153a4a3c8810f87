"""Inline SVG charts: lines over steps, task x step heat-maps, final scores per task."""
