"""The idle time: each piece of it, with the cause that ended so late what ended it."""
