"""Accountants and events for other libraries, each a module that imports its own."""
