"""The pure functions that lead each launch back to the model."""

from profiler_ext.attribution.analysis import attribute

__all__ = ["attribute"]
