"""Leads every GPU microsecond of a compiled training step back to the model's lines and modules."""
