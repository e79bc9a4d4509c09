"""Dominating pair in, dominating pair out."""
