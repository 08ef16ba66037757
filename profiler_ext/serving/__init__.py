"""The server for agents: read-only questions about sessions below the folders it is given."""
