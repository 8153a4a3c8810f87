"""Numbers from arrays: recalls and forgetting."""
