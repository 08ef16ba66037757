"""A module that is run by its name, and imports its neighbours."""

import sys

from . import inner

print(__name__, __package__, __spec__.name, sys.argv, sys.path[0], inner.VALUE)
inner.run()
