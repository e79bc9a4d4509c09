"""Projections of distributions onto the laws that a private draw may have."""
