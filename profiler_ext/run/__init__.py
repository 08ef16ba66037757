"""``profiler-ext run``: an untouched program, its steps recorded and written."""
