"""Output formats: one module each, all made from one ``Analysis``."""
