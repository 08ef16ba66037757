"""Links within report.html: to lines, modules, kernels and glossary entries.

The texts are those of the documentation, kept in the page so that it reads offline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from profiler_ext.exporters.html.elements import details, section, tag, text
from profiler_ext.exporters.views.idle import LineText, cause_sums
from profiler_ext.findings import RULES
from profiler_ext.printable import printable
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.vocabulary import NOTHING, IdleCause, Term

_SUBJECTS: Mapping[type[Term], str] = {
    GapReason: "Launches with it",
    IdleCause: "Idle time with it",
}
_CAUSES_BY_LABEL = {cause.label: cause for cause in IdleCause}
_RULES = {rule.name: rule for rule in RULES}


def link(kind: str, name: str, shown: str | None = None) -> str:
    """Return a link that the page's search follows."""
    there = quote(printable(name), safe="")
    is_other = shown is not None and shown != name
    title = name if is_other else None
    return tag("a", text(shown or name), href=f"#{kind}={there}", title=title)


def placed(sentence: LineText) -> str:
    """Return a sentence whose source line is a link."""
    line = link("line", sentence.line) if sentence.line else ""
    return f"{text(sentence.before)}{line}{text(sentence.after)}"


def glossary(analyses: Sequence[Analysis]) -> str:
    """Return a glossary section of the gaps and idle causes that occur."""
    categories = {line.category for analysis in analyses for line in analysis.breakdown}
    causes = cause_sums(analyses)
    terms = [each for each in (*GapReason, *IdleCause) if each in categories or each in causes]
    if not terms:
        return ""
    return section("words", "Glossary", tag("dl", *map(_listed, terms)))


def linked(label: str, term: Term | None) -> str:
    """Return a label as a link to its glossary entry, if it has one."""
    return label if term is None else tag("a", label, href=f"#{_anchor(term)}")


def term_of(label: str, category: str | None = None) -> Term | None:
    """Return the glossary term of a breakdown row."""
    return GapReason(category) if category in tuple(GapReason) else _CAUSES_BY_LABEL.get(label)


def rule_details(rule: str) -> str:
    """Return a collapsible explanation of a rule."""
    known = _RULES[rule]
    texts = (tag("p", _with_code(each)) for each in (known.means, known.because))
    return details(f"what {text(rule)} means", "".join(texts))


def _listed(term: Term) -> str:
    says = f"{_SUBJECTS[type(term)]} {term.meaning}."
    if term.remedy != NOTHING:
        says += f" What to do: {term.remedy}."
    in_words = "" if term.label == term.value else f": {text(term.label)}"
    head = tag("dt", tag("code", term.value), in_words)
    return tag("div", head, tag("dd", _with_code(says)), id=_anchor(term))


def _anchor(term: Term) -> str:
    return f"word-{term.value}"


def _with_code(sentence: str) -> str:
    """Return documentation text, its backquoted code as ``<code>``."""
    parts = text(sentence).split("`")
    return "".join(tag("code", p) if at % 2 else p for at, p in enumerate(parts))
