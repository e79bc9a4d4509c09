"""The arithmetic of dominating pairs: laws of sums, and privacy profiles of them."""
