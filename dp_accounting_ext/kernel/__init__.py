"""The whole arithmetic: laws of sums, and what is read off them."""
