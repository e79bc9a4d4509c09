"""Arrays in, arrays out: convolutions and profiles."""
