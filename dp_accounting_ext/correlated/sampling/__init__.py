"""Brackets by sampling, which hold with a chosen probability."""
