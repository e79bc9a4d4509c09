"""The dominating pair, and those of the base mechanisms."""
