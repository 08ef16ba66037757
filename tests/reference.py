"""The reference pages of ``docs``, made from the lists; ``make reference`` writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from profiler_ext.exporters.findings_json import json_schema
from profiler_ext.exporters.formats import FORMATS, Format
from profiler_ext.exporters.printed import PRINTED
from profiler_ext.exporters.table_kinds import TABLES, TableKind
from profiler_ext.exporters.tables.schema import COLUMNS
from profiler_ext.findings import LEAST_FRACTION, RULES, Rule
from profiler_ext.records import (
    NOTHING,
    CacheAnswer,
    CacheState,
    CompileCache,
    CompileKind,
    CompilePhase,
    EagerEvidence,
    ForwardEvidence,
    GapReason,
    IdleCause,
    LaunchKind,
    LedgerCategory,
    Level,
    LineEvidence,
    Mechanism,
    Phase,
    Scope,
    SiteEvidence,
    SiteKind,
    Term,
)
from profiler_ext.rooflines.words import Bound, Unit, UnitEvidence
from profiler_ext.store import EntryState
from profiler_ext.torch_compat import behaviour
from profiler_ext.torch_compat.behaviour import Difference, Version
from tests.analyses import gpu_step
from tests.maps import maps

DOCS = Path(__file__).parents[1] / "docs"
MEASURED = DOCS.parent / "benchmarks" / "findings_h200.md"
VOCABULARIES: tuple[type[Term], ...] = (
    GapReason,
    LineEvidence,
    EagerEvidence,
    Mechanism,
    ForwardEvidence,
    SiteEvidence,
    Phase,
    LaunchKind,
    SiteKind,
    Level,
    Scope,
    LedgerCategory,
    CacheState,
    EntryState,
    Unit,
    UnitEvidence,
    Bound,
    CompileKind,
    CompilePhase,
    CompileCache,
    CacheAnswer,
    IdleCause,
)
_MADE = "<!-- Written by `make reference` from the lists in the code. -->"
_GAPS = """# Gaps

What could not be led back to a line or an op is a row of its own in every table, with the reason
as `gap`: nothing is dropped, and nothing is guessed. The ledger (`profiler-ext report`,
`coverage()`) adds them up. This page has each reason: the words of the reports, what it says of the
launches, and what to do about it."""
_IDLE = """# Idle time

Each piece of the time in which a device ran nothing has a cause, in every table and view of idle
time: `idle_by_cause()` sums them, `idle_by_line()` says where the CPU was, and in Perfetto the
slices of the row *idle* are called so. The pieces add up to the ledger's idle time, for each step
and device, to the nanosecond.

**How it is told.** An idle span ends with a launch. From the beginning of the span until that
launch's call returned the device waited for the CPU: the span is cut by what the thread that
enqueued it did in that time, its innermost event. Autograd's threads and the thread that makes
the steps take turns, so for a launch of either both count, its own first; any other thread that
launches goes its own way. What is left, from the end of the call to the start on the device, is
launch latency. If the call was over before the device became idle, the CPU is not what it waited
for. What nothing ended, as the recording did, is told by the thread that makes the steps.

**What is cause and what is consequence: synchronisation.** A call such as `.item()` waits until
the device has nothing left to run. Then the device idles while the CPU enqueues anew, and what
the CPU does in that time is launching, or Python; but it would have been done long before, had
the CPU not waited. So that idle time is the wait's consequence, with a limit: as long in all as
the device was busy during the waits so far, since that much further ahead the CPU would have
been; and what a wait cost is used up in the order in which it was lost. In a step that is bound
by the device all that follows an `.item()` is its consequence; in one that is bound by launches,
where the device was as good as done when the CPU began to wait, next to nothing is. Such time is
*after a synchronisation*, and its line is that of the call that waited. Time in a data loader, a
compiler or an allocation keeps its name, and counts for the limit. Calls that free memory of a
device wait for it too.

**Tried.** Each cause made on purpose, told, and taken away (`benchmarks/idle_causes.py`, H200,
torch 2.11), in milliseconds a step. A recorded CPU is slower, so what it is behind with is told
longer.

| made on purpose | told | saved without a recording |
| --- | --- | --- |
| a data loader that takes 10 ms | 10.2 | 10.2 |
| 10 ms of Python after an `.item()` | 11.4 | 10.1 |
| `empty_cache()` in each step | 1.1 | 1.6 |
| four `.item()` in a step bound by the device | 1.3 | 0.6 |
| an `if` on a tensor after each of 12 blocks | 6.8 (saved in recorded steps: 7.9) | 1.6 |
| a rank that comes 10 ms late, with another | 7.4 | 10.0 |

**What it does not say.** That a cause is gone saves its time only if nothing else holds the step
up. A wait for another rank inside a NCCL kernel is busy time: see `communication()`. The
profiler's own time is what CUPTI reports of itself, in the segment of the CPU's time that it
covers most of, and the end of a recording; what it adds to each call is not told apart."""
_EVIDENCE = """# Evidence

Each attribution names the rule that it rests on. `by_link()` sums backward time by the rule that
led it to its forward op, and `by_mechanism()` all time by the way by which its line was found."""
_WORDS = """# Words of the tables

The values of the columns that say what ran. Gaps are in [gaps.md](gaps.md), evidence is in
[evidence.md](evidence.md)."""
_OF_VOCABULARY: Mapping[type[Term], tuple[str, str]] = {
    LineEvidence: ("Where a source line comes from", "The line"),
    EagerEvidence: ("Where the line of an eager launch comes from", "The line"),
    Mechanism: ("By which way a node's source line was found", "The line"),
    ForwardEvidence: ("How backward work is tied to its forward op", "The forward op"),
    SiteEvidence: ("How a launch is tied to its place", "The launch"),
    Phase: ("Phases", "The work"),
    LaunchKind: ("Kinds of launches", "The launch"),
    SiteKind: ("What a call site of a compiled graph launches", "The launch"),
    Level: ("Levels", "The launch, or a part of it,"),
    Scope: ("Parts of a step's wall time", "The time"),
    LedgerCategory: ("What the ledger's time was led to", "The time"),
    EntryState: ("States of stored records, in `profiler-ext cache list`", "The record"),
    CacheState: ("How a compiled graph came to be in a process", "The graph"),
    Unit: ("Which arithmetic a kernel used", "The arithmetic"),
    UnitEvidence: ("How that is known", "The launch"),
    Bound: ("What keeps a launch from being shorter", "The launch"),
    CompileKind: ("What a compilation is of", "The compilation"),
    CompilePhase: ("Phases of a compilation", "The time"),
    CompileCache: ("Caches that torch asks for a graph", "The cache"),
    CacheAnswer: ("What a cache answers", "The answer"),
}
_FORMATS = """# Formats

    profiler-ext export profile_out --to NAME        # or: session.export(PATH)

A path's suffix names the format; a path without one is a folder for TensorBoard."""
_TABLES = """# Tables

Each is a method of a session and of several ranks together, takes the filters `step`, `rank`,
`phase` and `scope` where they make sense, and is a pandas frame with nullable dtypes. Eager and
compiled work of one line or module are one row; `scope="compiled"` and `scope="eager"` give the
parts of each, and `launches` has them as a column. The values of the columns `phase`, `kind`,
`scope`, `level` and `cache_state` are in [words.md](words.md), those of `evidence` and
`forward_evidence` in [evidence.md](evidence.md), those of `gap` in [gaps.md](gaps.md), those of
`cause` in [idle.md](idle.md)."""

_FINDINGS = """# Findings: what to do first

Rules judge a session, and what they find is the first that the reports show, what has most at stake
first: `profiler-ext report --findings` prints all of it, `session.found` has the records and
`session.findings()` the table. `--format json` is the same for programs, with a schema that has a
number ([findings.schema.json](findings.schema.json)); `--fail-above 5%` ends with 4 where a finding
has more than that part of a step at stake.

- **A step** is the usual one: the lower median of the recorded steps, as a first one is often
  unlike the others.
- **At stake** is what the remedy can save. It is *measured* where it is time of the trace that goes
  with the flaw, *an estimate* where it rests on a model of the remedied step, and *at most* so much
  where what remains afterwards is not known. Where nobody can tell it is not claimed (`unknown`,
  a `?`): such a finding stands last and counts for nothing.
- **Who sets the pace**: a kernel that gets quicker makes a step quicker only where the step waits
  for the device. Where the CPU is behind with its launches, the device's wait gets longer and
  nothing else, so such time is at stake for no rule about kernels.
- Findings that count the same time **say so** (`shared_with`): their times are not to be added.
- Below {least:.0%} of a step and below 20 us, and below a tenth of a second of what each process
  spends once, **nothing is said**; what a rule lacks is said where
  a rule could not be judged. A session without a finding says that it has none."""

_TORCH = """# What differs between torch versions

The package reads and wraps private parts of torch. What torch does in some of the supported
versions only stands in one file, `profiler_ext/torch_compat/behaviour.py`, and this page is made of
it. Names that all versions have are declared in `torch_compat/names` and `points.py`; whether a
torch has them is recorded in `tests/fixtures/symbols`, one table a version.

A release does what its number says. A build on its way to a release (`2.13.0a0+nv26.05`,
`2.13.0.dev20260501`, `2.13.0rc2`) may or may not do yet what came with that number, so there a
private name that came with the behaviour, its sign, decides. In every other build the sign checks
the number: where they differ the sign is followed, `profiler-ext doctor` says so, and the session
has the gap [`torch_behaviour`](gaps.md#gap-torch_behaviour).

For a new torch: record its symbol table (`python -m tests.symbols VERSION`), add the version in
`tests/symbols/test_tables.py` and raise the bound in `pyproject.toml`, then run
`tests/test_behaviour.py` on it, which looks at what torch does for each row below. Where torch does
something new, add a row with a sign and a proof, and ask the flag where it matters. A row that no
longer tells supported versions apart fails there too: it goes, with the branch nobody takes."""


def pages() -> dict[str, str]:
    """Return each page's text by its name."""
    evidence = (LineEvidence, EagerEvidence, Mechanism, ForwardEvidence, SiteEvidence)
    words = (
        *(Phase, LaunchKind, SiteKind, Level, Scope, LedgerCategory, CacheState, EntryState),
        *(Unit, UnitEvidence, Bound),
        *(CompileKind, CompilePhase, CompileCache, CacheAnswer),
    )
    return {
        "gaps.md": _page(_GAPS, _terms(GapReason, "Launches with it", "##")),
        "idle.md": _page(_IDLE, _terms(IdleCause, "Idle time with it", "##")),
        "evidence.md": _page(_EVIDENCE, *map(_vocabulary, evidence)),
        "words.md": _page(_WORDS, *map(_vocabulary, words)),
        "formats.md": _page(_FORMATS, *map(_format, FORMATS), _texts()),
        "findings.md": _page(
            _FINDINGS.format(least=LEAST_FRACTION), MEASURED.read_text().strip(), *map(_rule, RULES)
        ),
        "findings.schema.json": json.dumps(json_schema(), indent=2) + "\n",
        "torch.md": _page(_TORCH, _flags(), _told_by_data()),
        "tables.md": _page(_TABLES, *map(_table, TABLES), _columns()),
        **maps(),
    }


def _page(*parts: str) -> str:
    first, *others = parts
    return "\n\n".join((first, _MADE, *others)) + "\n"


def _flags() -> str:
    rows = (
        _difference(row, "The sign", f"`{'.'.join(row.sign)}`".replace(".'", ":'"))
        for row in behaviour.ALL
    )
    return "\n\n".join(("## Flags, which code asks", *rows))


def _told_by_data() -> str:
    rows = (
        _difference(row, "Read in", f"`profiler_ext/{row.read_in}`")
        for row in behaviour.TOLD_BY_DATA
    )
    return "\n\n".join(("## Told by the data itself: no flag is needed", *rows))


def _rule(rule: Rule) -> str:
    parts = (
        f"## {rule.name}",
        f"*{rule.title}.* {rule.means}",
        f"**Why it happens.** {rule.because}",
        f"**What to try.** {rule.remedy}",
        f"**At stake.** {rule.stake}",
    )
    return "\n\n".join(parts)


def _difference(row: Difference, told_by: str, where: str) -> str:
    since = f"from {_numbered(row.since)} on" if row.since else "from the oldest on"
    until = f", until {_numbered(row.until)}" if row.until else ""
    facts = {
        "torch": row.does,
        "in other versions": row.otherwise,
        "versions": f"{since}{until}",
        "source": row.source,
        told_by.lower(): where,
    }
    rows = "\n".join(f"| {name} | {fact} |" for name, fact in facts.items())
    return f"### {row.name}\n\n| | |\n| --- | --- |\n{rows}"


def _numbered(version: Version) -> str:
    return ".".join(map(str, version))


def _vocabulary(vocabulary: type[Term]) -> str:
    title, subject = _OF_VOCABULARY[vocabulary]
    columns = " and ".join(f"`{column}`" for column in next(iter(vocabulary)).columns)
    where = f"\n\nColumns: {columns}." if columns else ""
    return f"## {title}{where}\n\n{_terms(vocabulary, subject, '###')}"


def _terms(vocabulary: type[Term], subject: str, level: str) -> str:
    return "\n\n".join(_term(term, subject, level) for term in vocabulary)


def _term(term: Term, subject: str, level: str) -> str:
    lines = [f"{level} {term.heading}", f"*{term.words}*. {subject} {term.meaning}."]
    remedy = [] if term.remedy == NOTHING else [f"What to do: {term.remedy}."]
    return "\n\n".join((*lines, *remedy))


def _format(format: Format) -> str:
    suffixes = ", ".join(f"`{suffix}`" if suffix else "none" for suffix in format.suffixes)
    facts = {
        "suffix of a path": suffixes,
        "without a path": f"`{format.target}`",
        "several ranks": "yes" if format.holds_ranks else "no",
        "carries whole source files": "yes" if format.shows_source else "no",
        "`profiler-ext run` writes": ", ".join(f"`{name}`" for name, _ in format.in_run),
        "to write it": f"`{format.writing.install}`" if format.writing else "",
        "to see it": f"`{format.viewing.install}`" if format.viewing else "",
    }
    rows = "\n".join(f"| {name} | {fact} |" for name, fact in facts.items() if fact)
    return f"## {format.name}\n\n{_sentence(format.words)}\n\n| | |\n| --- | --- |\n{rows}"


def _texts() -> str:
    rows = "\n".join(f"| `{each.name}` | {each.words} |" for each in PRINTED)
    return f"## What is printed\n\n`--format` takes:\n\n| | |\n| --- | --- |\n{rows}"


def _table(kind: TableKind) -> str:
    made = kind.make(gpu_step())
    columns = f"Columns: {_listed(list(made.columns))}."
    return "\n\n".join((f"## {kind.name}", _sentence(kind.words), *_said(kind), columns))


def _columns() -> str:
    rows = "\n".join(f"| `{c.name}` | {c.dtype} | {c.words} |" for c in COLUMNS.values())
    return f"## The columns\n\n| name | type | what it holds |\n| --- | --- | --- |\n{rows}"


def _said(kind: TableKind) -> Iterator[str]:
    if kind.keys:
        yield f"Its rows are told apart by {_listed(kind.keys)}."
    if kind.by:
        yield f"`profiler-ext report --by {kind.by}` prints it."
    if kind.is_written:
        yield "It is a file of an export to a folder of tables."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text)
