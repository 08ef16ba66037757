"""Steps with kernels that could be one, each beside its remedied form."""
