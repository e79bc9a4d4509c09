"""The dominating pairs of base mechanisms."""
