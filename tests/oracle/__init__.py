"""The oracle: random models whose constants tell which lines a generated kernel computes."""
