"""The comparison of two sides of runs: by ledger, phase, line, module, op, kernel, compile."""
