"""An independent reader of traces: what each launch is, by nesting and unions of intervals alone."""
