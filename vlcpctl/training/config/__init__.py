"""The configuration of a train-step: settings, presets, methods, phases."""
