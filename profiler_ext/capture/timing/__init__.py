"""Owns what is noted of compiles as such: when, how long in which phase, and why again."""
