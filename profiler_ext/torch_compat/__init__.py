"""Every private torch name: places to observe, probes, typed accessors."""
