from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from verification.hostile.pool import processes


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """One process that holds the libraries, of which each case is a child."""
    with processes(1) as opened:
        yield opened
