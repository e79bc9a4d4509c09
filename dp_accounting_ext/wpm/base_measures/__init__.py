"""Public measures that a private draw stays near: uniform, minimax, learned."""
