"""Checks that compiled pieces of serving engines have the lines and the layer that they ran for."""
