"""The harnesses: each holds the profiler against something that is not the profiler."""
