"""The pure functions that attribute each launch to the model."""

from profiler_ext.attribution.analysis import attribute

__all__ = ["attribute"]
