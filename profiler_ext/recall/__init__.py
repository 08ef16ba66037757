"""What is known of a graph in this process, whoever asks: capture that runs, or ``attach``.

From its own compile, from a record on the artifact, from the store, or from the text of the
generated code; nothing here needs torch.
"""
