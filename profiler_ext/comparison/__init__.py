"""The comparison of two sides of runs: by breakdown, phase, line, module, op, kernel, compile."""
