"""What every screen says, before one draws it.

Terminal, HTML, notebook and TensorBoard render it.
"""
