"""What the trace alone tells: nesting, launches and what enqueued them, steps."""
