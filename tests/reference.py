"""The reference pages of ``docs``, made from the lists; ``make reference`` writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pandas import DataFrame

from profiler_ext.comparison.gate import Outcome
from profiler_ext.comparison.records import Account, Match, Verdict
from profiler_ext.exporters.formats import FORMATS, Format
from profiler_ext.exporters.table_kinds import PRINT_FORMATS, TABLES, TableKind
from profiler_ext.exporters.tables.comparison import COMPARED
from profiler_ext.exporters.tables.schema import COLUMNS
from profiler_ext.findings import MIN_FRACTION, RULES, Rule
from profiler_ext.memory import rules as memory_rules
from profiler_ext.memory.recommendations import MemoryRule
from profiler_ext.records.compiles import CacheAnswer, CompileCache, CompileKind, CompilePhase
from profiler_ext.records.evidence import (
    EagerEvidence,
    ForwardEvidence,
    LineEvidence,
    Mechanism,
    ShareEvidence,
    SiteEvidence,
)
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.inside import InsideRoute
from profiler_ext.records.kernel_lines import KernelLineEvidence, LinePart
from profiler_ext.records.memory import (
    BirthEvidence,
    LifeEvidence,
    LifeReason,
    MemoryGap,
    MemoryKind,
    OwnerKind,
    UnusedKind,
)
from profiler_ext.records.vocabulary import (
    NOTHING,
    BreakdownCategory,
    CacheState,
    ChoiceKind,
    FusionBarrier,
    IdleCause,
    LaunchKind,
    Level,
    Phase,
    Scope,
    SiteKind,
    StepKind,
    Term,
)
from profiler_ext.rooflines.compute_units import Bound, Unit, UnitEvidence
from profiler_ext.store import EntryState
from profiler_ext.torch_compat import behaviour
from profiler_ext.torch_compat.behaviour import Difference, Version
from tests import frames as tables
from tests import reference_commands as shell
from tests import reference_communication as communication
from tests import reference_texts as texts
from tests.analyses import gpu_step
from tests.answer_schema import json_schema
from tests.maps import MAPS
from tests.reference_findings import false_alarms
from tests.reference_tables import comparison_columns, table_section
from tests.test_merging import two_ranks

DOCS = Path(__file__).parents[1] / "docs"
MEASURED = DOCS.parent / "benchmarks" / "findings_h200.md"
VOCABULARIES: tuple[type[Term], ...] = (
    MemoryKind,
    MemoryGap,
    UnusedKind,
    OwnerKind,
    BirthEvidence,
    LifeReason,
    LifeEvidence,
    GapReason,
    LineEvidence,
    EagerEvidence,
    Mechanism,
    ForwardEvidence,
    SiteEvidence,
    ShareEvidence,
    Phase,
    LaunchKind,
    SiteKind,
    Level,
    Scope,
    BreakdownCategory,
    CacheState,
    StepKind,
    EntryState,
    Unit,
    UnitEvidence,
    Bound,
    CompileKind,
    CompilePhase,
    CompileCache,
    CacheAnswer,
    FusionBarrier,
    ChoiceKind,
    InsideRoute,
    LinePart,
    KernelLineEvidence,
    IdleCause,
    Account,
    Match,
    Verdict,
    Outcome,
)
_MADE = "<!-- Written by `make reference` from the lists in the code. -->"
_OF_VOCABULARY: Mapping[type[Term], tuple[str, str]] = {
    LineEvidence: ("Where a source line comes from", "The line"),
    EagerEvidence: ("Where the line of an eager launch comes from", "The line"),
    Mechanism: ("By which way a node's source line was found", "The line"),
    ForwardEvidence: ("How backward work is tied to its forward op", "The forward op"),
    SiteEvidence: ("How a launch is tied to its place", "The launch"),
    ShareEvidence: ("How a launch is split among the nodes of its kernel", "The share of a node"),
    Phase: ("Phases", "The work"),
    LaunchKind: ("Kinds of launches", "The launch"),
    SiteKind: ("What a call site of a compiled graph launches", "The launch"),
    Level: ("Levels", "The launch, or a part of it,"),
    Scope: ("Parts of a step's wall time", "The time"),
    BreakdownCategory: ("What the time of the breakdown is attributed to", "The time"),
    EntryState: ("States of stored records, in `profiler-ext cache list`", "The record"),
    CacheState: ("How a compiled graph came to be in a process", "The graph"),
    StepKind: ("What a step of inference does", "The step"),
    Unit: ("Which arithmetic a kernel used", "The arithmetic"),
    UnitEvidence: ("Attribution method", "The launch"),
    Bound: ("What keeps a launch from being shorter", "The launch"),
    CompileKind: ("What a compilation is of", "The compilation"),
    CompilePhase: ("Phases of a compilation", "The time"),
    CompileCache: ("Caches that torch asks for a graph", "The cache"),
    CacheAnswer: ("What a cache answers", "The answer"),
    InsideRoute: ("How the time inside a kernel is measured", "What a line takes"),
    FusionBarrier: ("Why two kernels are not one", "A buffer between them"),
    ChoiceKind: ("What autotuning chooses among", "The choice"),
    MemoryKind: ("What memory at the peak is", "A block"),
    MemoryGap: ("Why the line of memory is not known", "Blocks with it"),
    UnusedKind: ("What no block has", "It"),
    OwnerKind: ("What holds memory", "A storage"),
    BirthEvidence: ("How the origin of memory is known", "A block"),
    LifeReason: ("Why memory is still allocated", "A block"),
    LifeEvidence: ("How it is known why memory is still allocated", "The reason"),
    LinePart: ("What a line or an instruction of a kernel does", "It"),
    KernelLineEvidence: ("How the op of a kernel's line is known", "The line"),
    Account: ("Parts of a step's wall time in a comparison", "The row's time"),
    Match: ("How the two sides of a comparison match", "The row"),
    Verdict: ("What a difference came to", "The row"),
    Outcome: ("What came of a condition of `diff --fail-if`", "What it is held against"),
}


def pages() -> Mapping[str, Callable[[], str]]:
    """Return what makes each page's text, by its name."""
    evidence = (
        *(LineEvidence, EagerEvidence, Mechanism, ForwardEvidence, SiteEvidence, ShareEvidence),
        BirthEvidence,
        LifeEvidence,
    )
    words = (
        *(
            Phase,
            LaunchKind,
            SiteKind,
            Level,
            Scope,
            BreakdownCategory,
            CacheState,
            EntryState,
            StepKind,
        ),
        *(Unit, UnitEvidence, Bound),
        *(FusionBarrier, ChoiceKind, InsideRoute, LinePart, KernelLineEvidence),
        *(CompileKind, CompilePhase, CompileCache, CacheAnswer),
        *(MemoryKind, MemoryGap, UnusedKind, OwnerKind, LifeReason),
        *(Account, Match, Verdict, Outcome),
    )
    return {
        "gaps.md": lambda: _page(texts.GAPS, _terms(GapReason, "Launches with it", "##")),
        "idle.md": lambda: _page(texts.IDLE, _terms(IdleCause, "Idle time with it", "##")),
        "evidence.md": lambda: _page(texts.EVIDENCE, *map(_vocabulary, evidence)),
        "words.md": lambda: _page(texts.WORDS, *map(_vocabulary, words)),
        "formats.md": lambda: _page(texts.FORMATS, *map(_format, FORMATS), _texts()),
        "findings.md": lambda: _page(
            texts.FINDINGS.format(least=MIN_FRACTION),
            *map(_rule, RULES),
            texts.MEMORY_FINDINGS.format(least=memory_rules.MIN_FRACTION),
            *map(_memory_rule, memory_rules.RULES),
        ),
        "answers.schema.json": lambda: json.dumps(json_schema(made_tables()), indent=1) + "\n",
        "torch.md": lambda: _page(texts.TORCH, _flags(), _by_number(), _by_data()),
        "tables.md": lambda: _page(texts.TABLES, *map(_table, TABLES)),
        "comparison.md": lambda: _page(_written("comparison.md"), comparison_columns(COMPARED)),
        "reference/commands.md": lambda: _page(shell.COMMANDS, shell.commands()),
        "reference/environment.md": lambda: _page(shell.VARIABLES, shell.variables()),
        "reference/communication.md": lambda: _page(
            communication.COMMUNICATION, communication.names()
        ),
        "trust/recommendations.md": lambda: _page(
            texts.RECOMMENDATIONS, MEASURED.read_text().strip(), false_alarms()
        ),
        "reference/statuses.md": lambda: _page(shell.STATUSES_PAGE, shell.statuses()),
        "reference/errors.md": lambda: _page(shell.ERRORS, shell.error_slugs()),
        **MAPS,
    }


def made_tables() -> dict[str, list[DataFrame]]:
    """Return each table of one rank and of several, whose columns the schema of answers states."""
    ranks = two_ranks()
    made = {
        kind.name: [kind.make(gpu_step()).to_pandas(), ranks.table(kind.name)] for kind in TABLES
    }
    return made | {"seq_table": [tables.seq_table([])]}


def _page(*parts: str) -> str:
    first, *others = parts
    return "\n\n".join((first, _MADE, *others)) + "\n"


def _written(name: str) -> str:
    """Return what a person wrote of a page, which stands before what is made."""
    return (DOCS / name).read_text().partition(_MADE)[0].strip()


def _flags() -> str:
    rows = (
        _difference(row, "The sign", f"`{'.'.join(row.sign)}`".replace(".'", ":'"))
        for row in behaviour.ALL
    )
    return "\n\n".join(("## Flags, which code asks", *rows))


def _by_number() -> str:
    rows = (
        _difference(row, "Where the number leaves it open", "it is taken not to")
        for row in behaviour.VERSION_FLAGS
    )
    return "\n\n".join(("## Known from the version number only", *rows))


def _by_data() -> str:
    rows = (
        _difference(row, "Read in", f"`profiler_ext/{row.read_in}`")
        for row in behaviour.PROBED_FLAGS
    )
    return "\n\n".join(("## Known from the data itself: no flag is needed", *rows))


def _rule(rule: Rule) -> str:
    parts = (
        f"## {rule.name}",
        f"*{rule.title}.* {rule.means}",
        f"**Why it happens.** {rule.because}",
        f"**What to try.** {rule.remedy}",
        f"**At stake.** {rule.saving}",
    )
    return "\n\n".join(parts)


def _memory_rule(rule: MemoryRule) -> str:
    parts = (
        f"## {rule.name}",
        f"*{rule.title}.* {rule.means}",
        f"**Why it happens.** {rule.because}",
        f"**What to try.** {rule.remedy}",
        f"**Bytes and time.** {rule.price}",
    )
    return "\n\n".join(parts)


def _difference(row: Difference, named_by: str, where: str) -> str:
    since = f"from {_numbered(row.since)} on" if row.since else "from the oldest on"
    until = f", until {_numbered(row.until)}" if row.until else ""
    facts = {
        "torch": row.does,
        "in other versions": row.otherwise,
        "versions": f"{since}{until}",
        "source": row.source,
        named_by.lower(): where,
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
    lines = [f"{level} {term.heading}", f"*{term.label}*. {subject} {term.meaning}."]
    remedy = [] if term.remedy == NOTHING else [f"What to do: {term.remedy}."]
    return "\n\n".join((*lines, *remedy))


def _format(format: Format) -> str:
    suffixes = ", ".join(f"`{suffix}`" if suffix else "none" for suffix in format.suffixes)
    facts = {
        "suffix of a path": suffixes,
        "example": f"`{format.target}`",
        "several ranks": "yes" if format.holds_ranks else "no",
        "contains source files": "yes" if format.shows_source else "no",
        "`profiler-ext run` writes": ", ".join(f"`{name}`" for name, _ in format.run_outputs),
        "to write it": f"`{format.writing.install}`" if format.writing else "",
        "to see it": f"`{format.viewing.install}`" if format.viewing else "",
    }
    rows = "\n".join(f"| {name} | {fact} |" for name, fact in facts.items() if fact)
    return f"## {format.name}\n\n{_sentence(format.description)}\n\n| | |\n| --- | --- |\n{rows}"


def _texts() -> str:
    rows = "\n".join(f"| `{each.name}` | {each.description} |" for each in PRINT_FORMATS)
    return f"## What is printed\n\n`--format` takes:\n\n| | |\n| --- | --- |\n{rows}"


def _table(kind: TableKind) -> str:
    made = kind.make(gpu_step()).to_pandas()
    return table_section(kind, COLUMNS, list(made.columns))


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


if __name__ == "__main__":
    for name, make in pages().items():
        (DOCS / name).write_text(make())
