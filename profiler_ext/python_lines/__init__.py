"""The watch of the program's Python: which line and module each thread was at, and when."""
