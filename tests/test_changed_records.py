"""A record that is another's but for some fields is what dataclasses.replace makes of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from profiler_ext.records.changing import changed


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Place(Line):
    file: str = "model.py"


def test_what_is_changed_is_as_dataclasses_replace_has_it_and_the_other_is_left() -> None:
    place = Place(3, "x = y")
    made = changed(place, text="x = z", file="other.py")
    assert made == dataclasses.replace(place, text="x = z", file="other.py")
    assert (type(made), place) == (Place, Place(3, "x = y"))
    assert changed(place) == place


def test_a_field_that_a_record_has_not_is_refused() -> None:
    with pytest.raises(KeyError, match="column"):
        changed(Line(1), column=2)
