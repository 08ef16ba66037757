"""Owns call sites: which nodes each launch of a wrapper computes, checked against its text."""
