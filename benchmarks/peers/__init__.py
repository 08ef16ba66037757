"""What is measured beside profiler_ext: one script a peer, run by a Python that has it.

Each reads one recording, asks what the peer can tell of where the time went, and prints what came
of it as JSON, so that it can be seen that the work was done.
"""
