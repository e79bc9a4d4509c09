"""Sums of privacy losses."""
