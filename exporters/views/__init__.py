"""What every screen shows, before terminal, HTML, notebook or TensorBoard render it."""
