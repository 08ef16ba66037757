"""The map of the rooms: what each owns, and what it may import."""

from __future__ import annotations

from tests.maps.page import owns, page, place, table
from tests.test_architecture import ALLOWED, INNER, OWNERS, modules

_ROOMS = """# Rooms

Each package (room) has one responsibility, and imports run one way: `tests/test_architecture.py`
holds this table and fails on any other arrow, and on a circle. The way of the data through the
rooms is in [architecture.md](architecture.md). A module's first line says what it is for."""


def rooms() -> str:
    """Return the page."""
    return page(_ROOMS, _rooms(), *map(_inner, INNER), _libraries())


def _rooms() -> str:
    rows = ((f"`{_path(room)}`", _owned(room), _imported(room)) for room in ALLOWED)
    return table(("room", "owns", "may import"), rows)


def _path(room: str) -> str:
    return place(f"profiler_ext.{room}")


def _owned(room: str) -> str:
    return owns(modules()["profiler_ext" if room == "__init__" else f"profiler_ext.{room}"])


def _imported(room: str) -> str:
    return ", ".join(f"`{each}`" for each in ALLOWED[room].split()) or "-"


def _inner(outer: str) -> str:
    room, order = f"profiler_ext.{outer}", INNER[outer]
    beside = [
        name
        for name in modules()
        if name.startswith(f"{room}.") and name.count(".") == 2 and name.split(".")[2] not in order
    ]
    names = (*(f"{room}.{each}" for each in order), *beside)
    rows = ((f"`{place(name)}`", owns(modules()[name])) for name in names)
    text = "A room here may import those above it, and the files of this room, which stand below."
    return f"## Within `{place(room)}`\n\n{text}\n\n{table(('room', 'owns'), rows)}"


def _libraries() -> str:
    rows = (
        (f"`{library}`", ", ".join(f"`{_importer(each)}`" for each in sorted(owners)))
        for library, owners in OWNERS.items()
    )
    text = "A recording is read, attributed and exported without torch."
    heads = ("library", "who may import it")
    return f"## Libraries\n\n{text}\n\n{table(heads, rows)}"


def _importer(owner: str) -> str:
    return place(owner) if owner.startswith("profiler_ext.") else _path(owner)
