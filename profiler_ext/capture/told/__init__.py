"""Owns what generated code tells of a graph that was compiled without capture: text, never run."""
