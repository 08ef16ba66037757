"""The outputs: one module for each format, all made from one ``Analysis``."""
