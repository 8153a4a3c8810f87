"""Numbers from arrays: recalls, forgetting and the numbers of benchmarks."""
