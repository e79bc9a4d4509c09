"""Integer weights, their check, and the draw: where the guarantee is."""
