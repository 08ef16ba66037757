"""The comparison of two sides of runs: by step time breakdown, phase, line, module, op or kernel."""
