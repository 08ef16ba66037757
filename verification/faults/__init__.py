"""What a failure costs: each function of ours that runs while a script trains is made to fail."""
