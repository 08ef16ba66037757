"""Owns every private torch name: behaviour flags, probes, typed accessors."""
