"""The result of profiling: a session, several ranks as one, their folders."""
