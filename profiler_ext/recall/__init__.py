"""What is known of a graph in this process, for running capture and for ``attach``.

From its compile, a record on the artifact, the store, or the generated code; without torch.
"""
