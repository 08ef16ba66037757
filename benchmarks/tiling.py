"""Long recordings: a short one repeated, each copy later and with numbers of its own.

Run: ``python -m benchmarks.tiling SOURCE TARGET [--events 1000000] [--steps 2]``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Event: TypeAlias = dict[str, Any]
Values: TypeAlias = dict[str, tuple[float, float]]
"""Of each number that copies have of their own: the first, and what each next one has more."""
_STEP = re.compile(r"ProfilerStep#(\d+)")
_IDS = ("correlation", "External id")
_BETWEEN_US = 1000


class Apart(NamedTuple):
    """What a copy has more than the one before: time, numbers of launches, steps."""

    later_us: float
    higher: int
    steps: int


def tile(source: Path, target: Path, events: int, steps: int | None = None) -> int:
    """Write a trace that repeats another one until it has enough events.

    Args:
        source: a Kineto trace.
        target: where the long one shall be.
        events: the least number of events.
        steps: all copies are in so many steps; without it each copy has steps of its own.

    Returns:
        How many events it has.
    """
    text = source.read_bytes()
    document = json.loads(gzip.decompress(text) if source.suffix == ".gz" else text)
    once: list[Event] = document.pop("traceEvents")
    each = sum(1 for event in once if event["ph"] != "M")
    copies = max(-(-events // each), steps or 1)
    with target.open("w") as file:
        file.write(f'{json.dumps(document)[:-1]}, "traceEvents": [')
        for number, line in enumerate(_lines(once, copies, steps)):
            file.write(",\n" + line if number else line)
        file.write("]}")
    return copies * each


def _lines(once: list[Event], copies: int, steps: int | None) -> Iterator[str]:
    """Yield the events as they are written: what names tracks first, then copy by copy."""
    yield from (json.dumps(event) for event in once if event["ph"] == "M")
    apart = _apart(once)
    whole = [] if steps is None else list(_whole(once))
    rest = (event for event in once if event["ph"] != "M")
    forms = [_form(e, apart) for e in rest if not (whole and _STEP.fullmatch(e["name"]))]
    for number in range(copies):
        yield from (text % _numbers(values, number) for text, values in forms)
    for step in range(steps or 0):
        first, last = (edge * copies // (steps or 1) for edge in (step, step + 1))
        for event in whole:
            longer = event["dur"] + (last - 1 - first) * apart.later_us
            own = {"name": f"ProfilerStep#{step}", "dur": round(longer, 3)}
            text, values = _form(event | own, apart._replace(steps=0))
            yield text % _numbers(values, first)


def _apart(once: Iterable[Event]) -> Apart:
    timed = [event for event in once if event["ph"] == "X"]
    end = max(event["ts"] + event["dur"] for event in timed)
    most = max(event.get("args", {}).get(key, 0) for event in once for key in _IDS)
    steps = [int(found[1]) for event in once if (found := _STEP.fullmatch(event["name"]))]
    later_us = end - min(event["ts"] for event in timed) + _BETWEEN_US
    return Apart(later_us, most + 1, max(steps) - min(steps) + 1 if steps else 0)


def _whole(once: Iterable[Event]) -> Iterator[Event]:
    """Yield for each track one step that has all that the recording's steps there have."""
    tracks: dict[tuple[Any, ...], list[Event]] = {}
    for event in once:
        if _STEP.fullmatch(event["name"]):
            tracks.setdefault((event["cat"], event["pid"], event["tid"]), []).append(event)
    for found in tracks.values():
        first = min(found, key=lambda event: event["ts"])
        end = max(event["ts"] + event["dur"] for event in found)
        yield first | {"dur": round(end - first["ts"], 3)}


def _form(event: Event, apart: Apart) -> tuple[str, Values]:
    """Return an event's text with names in place of numbers, and what the numbers are."""
    values: Values = {"ts": (event["ts"], apart.later_us)}
    if isinstance(event.get("id"), int):
        values["id"] = (event["id"], apart.higher)
    args = event.get("args", {})
    values |= {key: (args[key], apart.higher) for key in _IDS if args.get(key)}
    own: Event = {name: f"@{name}@" for name in values if name not in _IDS}
    own |= {"args": args | {name: f"@{name}@" for name in values if name in _IDS}} if args else {}
    if apart.steps and (found := _STEP.fullmatch(event["name"])):
        own["name"] = "ProfilerStep#@step@"
        values["step"] = (int(found[1]), apart.steps)
    text = json.dumps(event | own).replace("%", "%%").replace("@step@", "%(step)d")
    for name in values:
        text = text.replace(f'"@{name}@"', f"%({name}){'.3f' if name == 'ts' else 'd'}")
    return text, values


def _numbers(values: Values, copy: int) -> dict[str, float]:
    return {name: first + copy * added for name, (first, added) in values.items()}


def main() -> None:
    """Write a long recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, help="all in so many; else each copy has its own")
    chosen = parser.parse_args()
    tile(chosen.source, chosen.target, chosen.events, chosen.steps)


if __name__ == "__main__":
    main()
