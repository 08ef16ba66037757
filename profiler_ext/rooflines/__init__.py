"""Rooflines: what kernels moved and computed, compared with the device's peak."""
