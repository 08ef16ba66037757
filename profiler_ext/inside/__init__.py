"""What the time inside a kernel is spent on: its lines by FX node, its instructions by line."""
