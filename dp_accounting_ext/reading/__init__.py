"""Readers of events: from trees of events to mechanisms."""
