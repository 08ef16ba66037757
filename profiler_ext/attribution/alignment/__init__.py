"""Which call site of which graph each thing that a graph call ran belongs to."""
