"""The mutations: a recorded session with a few seeded changes of bytes or of values."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

from verification.hostile.fields import VALUES
from verification.hostile.making import EVENTS, FOLDER, OURS, SUFFIX, Json, dumped, session, text

_SMALL_BYTES = 20_000
_SNIPPETS = (
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b'"',
    b"\\",
    b"\x00",
    b"\xff",
    b"NaN",
    b"null",
    b"-",
    b"e9",
    b"1e999",
    b'"args"',
    b'"ph": "X"',
    b"[[[[[[[[",
    b"99999999999999999999",
    b"\\ud800",
    b" ",
    b"0",
)


def names(small_only: bool = True) -> list[str]:
    """Return the recorded sessions that are mutated."""
    paths = sorted(FOLDER.glob(f"*{SUFFIX}"))
    kept = [p for p in paths if not small_only or p.stat().st_size <= _SMALL_BYTES]
    return [path.name.removesuffix(SUFFIX) for path in kept]


class Mutation:
    """The mutation of a number; the same number gives the same file."""

    def __init__(self, seed: int, small_only: bool = True) -> None:
        self.seed, self._small_only = seed, small_only

    def __call__(self, folder: Path) -> Path:
        """Write it into a folder."""
        chosen = random.Random(self.seed)
        name = chosen.choice(names(self._small_only))
        kind = chosen.choice((_bytes, _values, _values, _values, _packed))
        path = folder / "case.pt.trace.json.gz"
        path.write_bytes(kind(name, chosen))
        return path


def _packed(name: str, chosen: random.Random) -> bytes:
    data = bytearray(gzip.compress(text(name), 1, mtime=0))
    for _ in range(chosen.randint(1, 4)):
        data[chosen.randrange(len(data))] = chosen.randrange(256)
    return bytes(data[: chosen.choice((len(data), len(data), chosen.randrange(len(data))))])


def _bytes(name: str, chosen: random.Random) -> bytes:
    data = bytearray(text(name))
    for _ in range(chosen.randint(1, 5)):
        at = chosen.randrange(len(data))
        length = chosen.choice((1, 1, 2, 8, 100, 5000))
        change = chosen.randrange(5)
        if change == 0:
            data[at] = chosen.randrange(256)
        elif change == 1:
            del data[at : at + length]
        elif change == 2:
            data[at:at] = data[at : at + length]
        elif change == 3:
            data[at:at] = chosen.choice(_SNIPPETS)
        else:
            data[at : at + 1] = chosen.choice(_SNIPPETS)
    return gzip.compress(bytes(data), 1, mtime=0)


def _values(name: str, chosen: random.Random) -> bytes:
    whole = session(name)
    for _ in range(chosen.randint(1, 4)):
        root = chosen.choice((whole, whole[EVENTS], whole[EVENTS], whole.get(OURS)))
        _change_value(root if isinstance(root, dict | list) else whole, chosen)
        if not isinstance(whole.get(EVENTS), list):
            break
    return gzip.compress(dumped(whole), 1, mtime=0)


def _change_value(root: Json, chosen: random.Random) -> None:
    holder, key = _walked(root, chosen)
    if key is None:
        return
    change = chosen.randrange(6)
    if change <= 2:
        holder[key] = chosen.choice(tuple(VALUES.values()))
    elif change == 3:
        del holder[key]
    elif isinstance(holder, list):
        at = chosen.randrange(len(holder))
        holder[key], holder[at] = holder[at], holder[key]
        if change == 4:
            holder.insert(at, holder[key])
    else:
        holder[key] = _near(holder[key], chosen)


def _near(value: Json, chosen: random.Random) -> Json:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return chosen.choice(
            (-value, value + 1, value * 1000, value // 2, str(value), float(value))
        )
    if isinstance(value, str):
        return chosen.choice((value[: len(value) // 2], value + "x", value * 50, value.upper()))
    if isinstance(value, list):
        return chosen.choice((value[::-1], value * 2, value[: len(value) // 2]))
    return None


def _walked(root: Json, chosen: random.Random) -> tuple[Any, Any]:
    """Return a container and a key in it, some way down from the root."""
    holder, key, at = None, None, root
    while isinstance(at, dict | list) and at:
        holder = at
        key = chosen.choice(list(at)) if isinstance(at, dict) else chosen.randrange(len(at))
        at = holder[key]
        if chosen.random() < 0.15:
            break
    return holder, key


def as_json(path: Path) -> Json:
    """Return a mutation as JSON, for a person who looks at one."""
    return json.loads(gzip.decompress(path.read_bytes()))
