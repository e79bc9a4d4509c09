"""Makes the oracles beside it known to the tests in folders."""
