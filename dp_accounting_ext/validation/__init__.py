"""Checks of what users pass in."""
