"""Whether replayed kernels stand where those of the same step without a graph do."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

__all__ = ["Kernel", "Verdict", "judge", "table"]

WHAT = ("line", "module", "phase")
Row = dict[str, Any]


class Part(NamedTuple):
    """One of the places that a kernel is attributed to."""

    line: str | None  # file and line
    module: str | None  # the path of the instance
    phase: str


@dataclass(frozen=True)
class Kernel:
    """What a step ran on a device."""

    name: str
    grid: str
    duration_ns: int
    parts: frozenset[Part]
    gap: str = ""
    is_replayed: bool = False


@dataclass(frozen=True)
class Verdict:
    """What is right of the replayed kernels of a program."""

    kernels: int  # replayed in each step
    judged_ns: int  # of replayed kernels that have a counterpart with a line
    right_ns: dict[str, int]  # of those, on the right line, module, phase
    wrong: int  # kernels on another line, module or phase than their counterpart, and no gap
    gaps_ns: dict[str, int]  # by reason
    unmatched: int  # replayed kernels without one counterpart
    unmatched_ns: int


def judge(truth: Sequence[Kernel], steps: Iterable[Sequence[Kernel]], has_branches: bool) -> Row:
    """Compare steps that replay with the step that launches.

    Equal kernels are compared in their order, with branches as a whole: those have none. Where a
    name and grid ran another number of times, nothing says which is which.
    """
    launched = _by_kind(truth)
    right, gaps = Counter[str](), Counter[str]()
    own = Verdict(0, 0, {}, 0, {}, 0, 0)
    for step in steps:
        own = replace(own, kernels=max(own.kernels, sum(each.is_replayed for each in step)))
        for kernel, expected in _pairs(launched, step, has_branches):
            ns = kernel.duration_ns
            gaps.update({kernel.gap: ns} if kernel.gap else {})
            if expected is None:
                own = replace(own, unmatched=own.unmatched + 1, unmatched_ns=own.unmatched_ns + ns)
                continue
            fits = {what: _has_same(what, kernel, expected) for what in WHAT}
            right.update({what: ns for what in WHAT if fits[what]})
            is_wrong = not kernel.gap and not all(fits.values())
            own = replace(own, judged_ns=own.judged_ns + ns, wrong=own.wrong + is_wrong)
    right_ns = {what: right[what] for what in WHAT}
    return asdict(replace(own, right_ns=right_ns, gaps_ns=dict(sorted(gaps.items()))))


def _pairs(
    launched: Mapping[tuple[str, str], list[Kernel]], step: Sequence[Kernel], has_branches: bool
) -> Iterator[tuple[Kernel, Kernel | None]]:
    """Yield the replayed kernels of a step, each with its counterpart, if it has one."""
    for kind, ran in _by_kind(step).items():
        expected = launched.get(kind, [])
        if has_branches:
            expected = _nearest(expected, ran)
        for at, kernel in enumerate(ran):
            is_known = len(expected) == len(ran) and not expected[at].gap
            if kernel.is_replayed:
                yield kernel, expected[at] if is_known else None


def _has_same(what: str, kernel: Kernel, expected: Kernel) -> bool:
    own, other = ({getattr(part, what) for part in each.parts} for each in (kernel, expected))
    return own == other


def _by_kind(kernels: Sequence[Kernel]) -> dict[tuple[str, str], list[Kernel]]:
    kinds: dict[tuple[str, str], list[Kernel]] = defaultdict(list)
    for each in kernels:
        kinds[each.name, each.grid].append(each)
    return kinds


def _nearest(expected: Sequence[Kernel], ran: Sequence[Kernel]) -> list[Kernel]:
    """Return the counterparts in the order in which they fit, those that fit none last."""
    left = list(expected)
    found: list[Kernel | None] = []
    for kernel in ran:
        at = next((i for i, each in enumerate(left) if each.parts == kernel.parts), None)
        found.append(None if at is None else left.pop(at))
    return [each or left.pop(0) for each in found if each or left]


def table(rows: Sequence[Row]) -> str:
    """All programs in Markdown, and what they come to."""
    lines = [
        "| program | kernels | right line | right module | right phase | wrong | gaps | "
        "without a counterpart |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |",
        *map(_line, rows),
    ]
    ran = [row for row in rows if "verdict" in row]
    lines += ["", f"{sum(map(is_right, ran))} of {len(ran)} are right; {len(rows)} programs."]
    return "\n".join(lines) + "\n"


def is_right(row: Row) -> bool:
    """Whether all that was judged is right, and most was."""
    own = row["verdict"]
    most = own["judged_ns"] > own["unmatched_ns"]
    all_right = all(own["right_ns"][what] == own["judged_ns"] for what in WHAT)
    return bool(own["judged_ns"] and most and all_right and not own["wrong"])


def _line(row: Row) -> str:
    if "verdict" not in row:
        what = "skipped" if "skipped" in row else "failed"
        return f"| {row['name']} | {what}: {row.get('skipped', row.get('failure'))} |".replace(
            "\n", " "
        )
    own = row["verdict"]
    ran_ns = own["judged_ns"] + own["unmatched_ns"]
    gaps = (f"{reason} {_percent(ns, ran_ns)}" for reason, ns in own["gaps_ns"].items())
    cells = (
        row["name"],
        str(own["kernels"]),
        *(_percent(own["right_ns"][what], own["judged_ns"]) for what in WHAT),
        str(own["wrong"]),
        ", ".join(gaps),
        f"{own['unmatched']} ({_percent(own['unmatched_ns'], ran_ns)})" if own["unmatched"] else "",
    )
    return f"| {' | '.join(cells)} |"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}%" if whole else ""
