"""Processes that work together: their ranks, what they send each other, and their signals."""
