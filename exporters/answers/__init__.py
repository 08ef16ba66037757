"""Owns answers for programs: each is one JSON object of a stated schema, bounded in size."""
