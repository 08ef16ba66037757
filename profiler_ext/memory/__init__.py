"""Device memory: its file, the peak of each step, and what is alive there, by line and kind."""
