"""The gold files: all that each recorded GPU session shows, row for row, as text to review."""
