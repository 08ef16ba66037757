"""Tests of the whole way, in processes of their own: compile, profile, attribute, export."""
