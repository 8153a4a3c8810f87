"""What a train-step is asked to do: settings, presets, methods, phases."""
