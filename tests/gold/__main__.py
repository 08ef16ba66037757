"""The renewal of gold files: writes what the recordings show now, and prints what changed.

python -m tests.gold [NAME ...]    all of them without a name
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable

from tests.gold.differing import difference, split_times
from tests.gold.recorded import GOLD, path_of, texts


def renew(name: str, text: str) -> str:
    """Write a gold file, print what is new in it, and return what became of it."""
    path = path_of(name)
    before = path.read_text() if path.exists() else None
    if before == text:
        return "as before"
    path.write_text(text)
    if before is None:
        return "new"
    print("\n".join(difference(split_times(before)[0], split_times(text)[0], name)))
    return "changed" if split_times(before)[0] != split_times(text)[0] else "changed in times only"


def remove_others(names: Iterable[str]) -> int:
    """Remove the gold files that no recording has any more."""
    others = set(GOLD.glob("*.txt")) - {path_of(name) for name in names}
    for path in others:
        path.unlink()
    return len(others)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a case, as cnn or ddp.rank_0")
    options = parser.parse_args()
    every = texts()
    if unknown := set(options.names) - set(every):
        parser.error(f"no recording is called {', '.join(sorted(unknown))}; {', '.join(every)} are")
    GOLD.mkdir(exist_ok=True)
    found = Counter(renew(name, every[name]()) for name in options.names or every)
    found["removed"] = remove_others(every)
    print(", ".join(f"{count} {what}" for what, count in found.items() if count))


if __name__ == "__main__":
    main()
