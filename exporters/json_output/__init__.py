"""JSON for programs: each answer is one object of a stated schema, bounded in size."""
