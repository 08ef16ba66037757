"""The tests of rooflines."""
