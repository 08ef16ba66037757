"""The tests of the outputs."""
