"""Projections of distributions onto those that a private draw may have."""
