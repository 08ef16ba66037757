"""The hooks: what each observes in torch, and how all are installed and removed."""
