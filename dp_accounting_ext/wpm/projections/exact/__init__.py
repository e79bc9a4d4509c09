"""Exact projections: each module one algorithm."""
