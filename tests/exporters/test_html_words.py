"""What a gap, a cause or a rule means stands in the page itself, as in the book, and is linked."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from profiler_ext.exporters.html import links
from profiler_ext.exporters.html.page import html_text
from profiler_ext.findings import RULES
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.vocabulary import IdleCause
from tests.analyses import gpu_step

DOCS = Path(__file__).parents[2] / "docs"


def plain(page: str) -> str:
    """Return the text of a part of a page."""
    page = re.sub("</?code>", "", page)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


@pytest.fixture(scope="module")
def page() -> str:
    return html_text((gpu_step(),))


def test_the_words_of_a_report_are_those_of_its_step_time_breakdown(page: str) -> None:
    analysis = gpu_step()
    gaps = {line.category for line in analysis.breakdown} & set(GapReason)
    causes = {analysis.idle.cause.strings[code] for code in analysis.idle.cause.codes}
    assert gaps and causes
    assert set(re.findall(r'<div id="word-(\w+)">', page)) == gaps | causes


def test_each_link_of_the_step_time_breakdown_leads_to_a_word(page: str) -> None:
    linked = set(re.findall(r'href="#word-(\w+)"', page))
    assert linked == set(re.findall(r'id="word-(\w+)"', page))


@pytest.mark.parametrize("vocabulary", [GapReason, IdleCause])
def test_a_word_is_explained_as_in_the_book(vocabulary: type[GapReason | IdleCause]) -> None:
    for term in vocabulary:
        file, _, _ = term.page.partition("#")
        _, _, section = (DOCS / file).read_text().partition(f"## {term.heading}\n")
        described = section.partition("\n## ")[0].replace("`", "").partition("*. ")[2]
        assert plain(links._listed(term)).endswith(" ".join(described.split()))


def test_a_finding_is_explained_as_in_the_book() -> None:
    book = " ".join((DOCS / "findings.md").read_text().replace("`", "").split())
    for rule in RULES:
        means, why = re.findall(r"<p>(.*?)</p>", links.rule_details(rule.name))
        for text in (f".* {plain(means)}", f"**Why it happens.** {plain(why)}"):
            assert text in book


def test_what_is_no_word_of_the_step_time_breakdown_has_no_link() -> None:
    assert links.linked("(2 more causes)", links.term_of("(2 more causes)")) == "(2 more causes)"
    assert links.term_of("attributed to source", "line") is None
