"""Rooflines: what kernels moved and computed, and how near that is to the device's best."""
