"""Device idle time in pieces, each with its cause."""
