"""k-out-of-t random allocation: a theorem from above, statistics from below."""
