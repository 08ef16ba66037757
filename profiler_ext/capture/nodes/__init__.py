"""Owns FX nodes as records: what each is in its graph, beside its lineage."""
