"""Structure of the trace alone: nesting, launches and what enqueued them, steps."""
