"""The records of the project: a few frozen records, and tables of columns."""
