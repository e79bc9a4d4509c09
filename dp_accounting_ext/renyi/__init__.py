"""Rényi divergences of mechanisms: from orders to bounds on divergences (RDP)."""
