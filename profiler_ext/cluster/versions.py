"""Owns which versions the processes of a Dask cluster must have in common.

What they send each other is pickled: functions and records by name, tables as pandas has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from profiler_ext.errors import UsageError

_VERSION_PARTS = {"python": 2, "dask": 3, "distributed": 3, "numpy": 1, "pandas": 1}
"""So many parts of the version of each."""


def check_versions(reported: Mapping[str, Any]) -> None:
    """Refuse a scheduler or workers with other versions than this process.

    Args:
        told: what Dask's ``Client.get_versions`` tells.

    Raises:
        UsageError: One has others; the first is told, with how many there are.
    """
    own = reported["client"]
    others = {"Dask scheduler": reported["scheduler"]} | {
        f"Dask worker {address}": each for address, each in reported["workers"].items()
    }
    result = {name: lines for name, each in others.items() if (lines := list(_mismatches(own, each)))}
    if not result:
        return
    name, differences = next(iter(result.items()))
    more = f" (and {len(result) - 1:,} more of its processes)" if len(result) > 1 else ""
    packages = [f"{package}=={here}" for package, _, here in differences if package != "python"]
    remedy = f"pip install {' '.join(packages)}" if packages else "the same Python"
    raise UsageError(
        f"the {name}{more} has "
        + ", ".join(f"{package} {theirs}, expected {here}" for package, theirs, here in differences)
        + f"; use {remedy} there, or its versions here"
    )


def _mismatches(own: Mapping[str, Any], each: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield each package whose version is another, with that, and with this process's."""
    here, theirs = _versions(own), _versions(each)
    for package, parts in _VERSION_PARTS.items():
        mine, its = here.get(package), theirs.get(package)
        if mine and its and mine.split(".")[:parts] != its.split(".")[:parts]:
            yield package, its, mine


def _versions(reported: Mapping[str, Any]) -> dict[str, str]:
    """Return the version of each package; Dask tells Python's as ``3.11.7.final.0``."""
    result = {name: str(version) for name, version in reported["packages"].items() if version}
    return result | {"python": ".".join(result.get("python", "").split(".")[:3])}
