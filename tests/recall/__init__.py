"""The tests of recall."""
