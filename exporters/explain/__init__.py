"""The page about one thing: what a name means, and all that is known of it."""
