"""What is seen of graphs as they are traced and as passes change them, in plain records."""
