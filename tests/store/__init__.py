"""The files of provenance."""
