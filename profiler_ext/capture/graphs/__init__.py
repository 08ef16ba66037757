"""Graphs as a whole: what is known while one compiles, its provenance, its instances here."""
