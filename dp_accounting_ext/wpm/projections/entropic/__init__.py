"""The entropic projection, and the paper's iteration for it."""
