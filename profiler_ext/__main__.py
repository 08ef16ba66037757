"""``python -m profiler_ext``."""

import sys

from profiler_ext.cli import main

if __name__ == "__main__":
    sys.exit(main())
