"""The map of where a node's line comes from: the order of mechanisms, and of truths."""

from __future__ import annotations

import inspect
import re
import tokenize
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import profiler_ext
from profiler_ext.capture.lineage import order
from profiler_ext.records.evidence import LineEvidence, Mechanism
from tests.maps.page import first_sentence, page, place, table

_MECHANISMS = """# The order of mechanisms, and of truths

Two questions are answered for each FX node: which **mechanism** gives the node's source line, when
it is compiled; and from which **truth** that line comes, when a cache answers instead."""
_TRUTHS: Mapping[LineEvidence, str] = MappingProxyType(
    {
        LineEvidence.COMPILED: "the first run of a script",
        LineEvidence.CALLED: "`torch.compile(nn.Sequential(...))`: stock layers have no line "
        "of the program's, and its call has one",
        LineEvidence.FRESH_GRAPH: "a later run with AOTAutograd's cache off or bypassed: autograd "
        "was traced again, and Inductor's code came from the FX graph cache",
        LineEvidence.FRESH_DYNAMO: "a later run with all caches on, though lines were added above "
        "the function since: Dynamo traced it again, and it is the same graph",
        LineEvidence.RECORDED: "code that is loaded as is, with nothing traced: "
        "`torch._inductor.standalone_compile`, saved and loaded",
        LineEvidence.ATTACHED: "a trace of plain `torch.profiler`, given to `profiler-ext attach`",
        LineEvidence.CODE_COMMENTS: "a run after one that filled the cache without profiler_ext",
        LineEvidence.STALE: "code that is loaded as is, and its source was edited since: no line",
        LineEvidence.GRADIENT: "`add`, where compiled autograd sums two gradients of one weight",
        LineEvidence.EAGER_BACKWARD: "`SumBackward0` of a loss that was summed eagerly, in a graph "
        "of compiled autograd: no line",
        LineEvidence.ABSENT: "a node that Inductor made and on which torch wrote no stack: no line",
    }
)


def mechanisms() -> str:
    """Return the page."""
    return page(_MECHANISMS, _order(), _copies(), _values(), _truths())


def _order() -> str:
    text = (
        "Each mechanism is one function, from a stage of a graph to what is known of some of its "
        "nodes. They are asked in this order (`profiler_ext/capture/lineage/order.py`), each sees "
        "what those before it found, and **of two that know a node, the later wins**."
    )
    return f"## Mechanisms\n\n{text}\n\n{_rules(order.ORDER)}"


def _copies() -> str:
    text = (
        "The one graph of compiled autograd is made of copies, and neither Dynamo nor AOTAutograd "
        "keeps what its nodes were. What they are is noted while Dynamo hands it over, by these "
        "rules in the same way (`COPIES`, in the same file); `copied_by_autograd` above takes it "
        "from there."
    )
    return f"### In a graph of compiled autograd's\n\n{text}\n\n{_rules(order.COPIES)}"


def _rules(rules: Iterable[order.Rule]) -> str:
    reported = _comments(Path(order.__file__))
    rows = (
        (
            str(number),
            f"`{rule.__name__}`",
            _rule_does(rule),
            reported[rule.__name__],
            _file_of(rule),
        )
        for number, rule in enumerate(rules, 1)
    )
    return table(("", "rule", "what it does", "example", "file"), rows)


def _rule_does(rule: order.Rule) -> str:
    return first_sentence(inspect.getdoc(rule) or "")


def _file_of(rule: order.Rule) -> str:
    return f"`{place(rule.__module__)}`"


def _comments(source: Path) -> dict[str, str]:
    """Return the comment above each row of the tuples in a file, by the row's name."""
    with source.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    found, waiting = dict[str, str](), list[str]()
    for token in tokens:
        if token.type == tokenize.COMMENT:
            waiting.append(token.string.removeprefix("#").strip())
        elif token.type == tokenize.NAME and waiting:
            found[token.string] = " ".join(waiting)
            waiting = []
    return found


def _values() -> str:
    rows = (
        (
            f"[`{each.value}`](evidence.md#{each.page.partition('#')[2]})",
            each.label,
            ", ".join(f"`{place}`" for place in places_of(each)),
        )
        for each in Mechanism
    )
    text = (
        "What the column `mechanism` of the tables says, for a node that has a line, and the files "
        "that say it. All but one are of rules. What torch printed next to a node in its generated "
        "code is read where no graph was seen: there is no stage at which a rule could be asked, "
        "and no second one that could know better, so it is a truth (below) with its own name."
    )
    listed = table(("value", "words", "said in"), rows)
    return f"### As the tables have them\n\n{text}\n\n{listed}"


def places_of(mechanism: Mechanism) -> list[str]:
    """Return the files that say of a lineage that a mechanism gave it."""
    root = Path(profiler_ext.__file__).parent
    reported = re.compile(rf"\bMechanism\.{mechanism.name}\b")
    rooms = (path for room in ("capture", "recall") for path in (root / room).rglob("*.py"))
    files = (path for path in sorted(rooms) if reported.search(path.read_text()))
    return [f"{root.name}/{path.relative_to(root).as_posix()}" for path in files]


def _truths() -> str:
    rows = (
        (
            str(number),
            f"[`{e.value}`](evidence.md#{e.page.partition('#')[2]})",
            e.meaning,
            _TRUTHS[e],
        )
        for number, e in enumerate(LineEvidence, 1)
    )
    text = (
        "What the column `evidence` says of a node's line, the best truth first. Wherever this "
        "process's source was traced, the line is of that; what was recorded counts only where "
        "its text still stands in the file."
    )
    listed = table(("", "truth", "the line", "example"), rows)
    return f"## Truths\n\n{text}\n\n{listed}"
