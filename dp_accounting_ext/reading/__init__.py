"""From events to mechanisms."""
