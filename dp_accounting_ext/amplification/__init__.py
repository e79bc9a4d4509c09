"""Privacy amplification: functions from dominating pairs to dominating pairs."""
