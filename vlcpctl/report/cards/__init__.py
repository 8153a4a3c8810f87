"""What checkpoints record about the runs of a report: losses, cost, settings and provenance."""
