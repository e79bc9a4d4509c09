"""Rényi divergences of mechanisms: orders in, RDP values out."""
