"""That the user's program is not harmed by what we do within it."""
