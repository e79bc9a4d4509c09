"""Certified answers of a composition: ε and δ, and trade-off curves."""
