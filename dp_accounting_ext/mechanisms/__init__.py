"""Mechanisms as dominating pairs."""
