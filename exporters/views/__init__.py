"""What every screen says, before one draws it: terminal, HTML, notebook and TensorBoard render it."""
