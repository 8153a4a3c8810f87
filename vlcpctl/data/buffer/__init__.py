"""The buffer of earlier pairs: how it is updated, and what it stores."""
