"""Compile-time capture: hooks in torch.compile, and what they see turned into provenance."""
