"""Integer weights, their check, and the draw, which give the privacy guarantee."""
