"""An independent reader of traces: nesting and unions of intervals, and none of our code."""
