"""Where pairs come from: one file per format, all giving `Pair`s a batch at a time."""
