"""The mutants: a sample of small faults in our rules, each of which some test must notice."""
