"""Where each node of a graph comes from: one mechanism a file, and the order they win in."""
