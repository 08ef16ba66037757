"""What each recording shows is its gold file, row for row and nanosecond for nanosecond."""

from __future__ import annotations

import pytest

from tests.gold.differing import difference
from tests.gold.recorded import GOLD, path_of, texts

LINES = 30
TEXTS = texts()


@pytest.mark.parametrize("name", TEXTS)
def test_a_recording_shows_what_its_gold_file_says(name):
    now, gold = TEXTS[name](), path_of(name).read_text()
    if now != gold:  # a comparison by assert would format both whole
        lines = difference(gold, now, name)
        more = f"... and {len(lines) - LINES} lines more" if len(lines) > LINES else ""
        tail = "where that is right, `make gold` renews the files and prints what changed"
        pytest.fail("\n".join([*lines[:LINES], more, tail]), pytrace=False)


def test_each_gold_file_is_of_a_recording():
    assert {path.name for path in GOLD.iterdir()} == {path_of(name).name for name in TEXTS}
