"""Tests of capture: hand-made graphs and records first, then small compiles in this process."""
