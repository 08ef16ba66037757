"""What a person read in the models' sources: where the work of each case belongs."""
