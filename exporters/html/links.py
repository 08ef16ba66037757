"""Links within report.html: to lines, modules, kernels and glossary entries.

The texts are the book's, and stand in the page, so that nobody has to be online to read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from profiler_ext.exporters.views.idle import LineText, cause_sums
from profiler_ext.findings import RULES
from profiler_ext.printable import printable
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.vocabulary import NOTHING, IdleCause, Term


def link(kind: str, name: str, shown: str | None = None) -> str:
    """Return a link that the page's search follows."""
    there = quote(printable(name), safe="")
    is_other = shown is not None and shown != name
    whole = f' title="{escape(printable(name))}"' if is_other else ""
    return f'<a href="#{kind}={there}"{whole}>{escape(printable(shown or name))}</a>'


def placed(text: LineText) -> str:
    """Return a sentence whose line of source is a link."""
    line = link("line", text.line) if text.line else ""
    before, after = (escape(printable(each)) for each in (text.before, text.after))
    return f"{before}{line}{after}"


_SUBJECTS: Mapping[type[Term], str] = {
    GapReason: "Launches with it",
    IdleCause: "Idle time with it",
}
_IN_WORDS = {cause.words: cause for cause in IdleCause}
_RULES = {rule.name: rule for rule in RULES}


def words(analyses: Sequence[Analysis]) -> str:
    """Return a section with each gap and cause of idle time that the ledger has."""
    categories = {line.category for analysis in analyses for line in analysis.ledger}
    causes = cause_sums(analyses)
    terms = [each for each in (*GapReason, *IdleCause) if each in categories or each in causes]
    if not terms:
        return ""
    listed = "".join(map(_listed, terms))
    return f'<section id="words"><h2>Words of this report</h2><dl>{listed}</dl></section>\n'


def linked(label: str, term: Term | None) -> str:
    """Return a label as a link to what it means; of no word of the page the label alone."""
    return label if term is None else f'<a href="#{_anchor(term)}">{label}</a>'


def term_of(text: str, category: str | None = None) -> Term | None:
    """Return the word that a row of the ledger says."""
    return GapReason(category) if category in tuple(GapReason) else _IN_WORDS.get(text)


def rule_details(rule: str) -> str:
    """Return what a rule says and why that happens, to be opened."""
    known = _RULES[rule]
    texts = "".join(f"<p>{_text(each)}</p>" for each in (known.means, known.because))
    return f"<details><summary>what {escape(rule)} means</summary>{texts}</details>"


def _listed(term: Term) -> str:
    says = f"{_SUBJECTS[type(term)]} {term.meaning}."
    if term.remedy != NOTHING:
        says += f" What to do: {term.remedy}."
    in_words = "" if term.words == term.value else f": {escape(term.words)}"
    head = f"<dt><code>{term.value}</code>{in_words}</dt>"
    return f'<div id="{_anchor(term)}">{head}<dd>{_text(says)}</dd></div>'


def _anchor(term: Term) -> str:
    return f"word-{term.value}"


def _text(text: str) -> str:
    """Escape a text of the book, whose code is set between backquotes."""
    parts = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if at % 2 else p for at, p in enumerate(parts))
