"""The terminal: reports, tables and annotated source, drawn with rich."""
