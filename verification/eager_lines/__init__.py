"""The tests of single cases of eager work: which line each launch has, and why.

The lines are those that a marker names in the source, ``# line: name``; no number stands here.
"""
