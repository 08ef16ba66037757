"""The tests; what is made by hand is in ``handmade`` and ``analyses``."""
