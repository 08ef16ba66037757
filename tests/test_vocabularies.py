"""Each word of a closed vocabulary has its words, its meaning, its remedy, and its page."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest

from profiler_ext.attribution import notes
from profiler_ext.cli import cache
from profiler_ext.exporters.views import formatting
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.vocabulary import NOTHING, LaunchKind, SiteKind, Term
from profiler_ext.sessions.session import Session, load
from profiler_ext.store import EntryState
from tests.reference import DOCS, VOCABULARIES, pages

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "tests" / "fixtures" / "h200" / "cases"
CASES = (
    "checkpoint",
    "compiled_autograd_hooks",
    "cudagraphs_seen_late",
    "flex_attention",
    "fsdp2.rank_0",
    "user_triton",
)
SOURCES = "\n".join(
    path.read_text()
    for folder in ("profiler_ext", "exporters")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.parent.name != "records"
)
TERMS = [term for vocabulary in VOCABULARIES for term in vocabulary]
every_term = pytest.mark.parametrize("term", TERMS, ids=lambda term: term.heading)


def test_every_vocabulary_is_documented() -> None:
    assert set(Term.__subclasses__()) == set(VOCABULARIES)


@every_term
def test_a_term_has_words_a_meaning_a_remedy_and_a_page(term: Term) -> None:
    assert (term, f"{term}", type(term)(term.value)) == (term.value, term.value, term)
    assert 0 < len(term.label) <= 60
    for text in (term.label, term.meaning, term.remedy):
        assert text and not re.search(r"\s\s|[.;:,]$", text), text
    page, _, anchor = term.page.partition("#")
    assert anchor in anchors((DOCS / page).read_text())


@every_term
def test_a_term_is_given_somewhere(term: Term) -> None:
    named = re.escape(f"{type(term).__name__}.{term.name}")
    is_of_site = isinstance(term, LaunchKind) and term.value in list(SiteKind)
    assert is_of_site or re.search(rf"\b{named}\b", SOURCES)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("column", sorted({each for term in TERMS for each in term.columns}))
def test_a_column_holds_words_of_its_vocabularies(column: str, name: str) -> None:
    table, _, of = column.partition(".")
    found = set(recorded_session(name).table(table)[of].dropna())
    assert found <= {term.value for term in TERMS if column in term.columns}


def test_terms_of_a_page_share_no_anchor() -> None:
    for page in {term.page.partition("#")[0] for term in TERMS}:
        found = anchors((DOCS / page).read_text())
        assert len(set(found)) == len(found), page


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_terms_of_a_vocabulary_are_distinguished_by_their_words(vocabulary: type[Term]) -> None:
    for attribute in ("label", "meaning"):
        texts = [getattr(term, attribute) for term in vocabulary]
        assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("reason", GapReason)
def test_a_gap_has_a_remedy_and_the_reports_say_its_words(reason: GapReason) -> None:
    assert reason.remedy != NOTHING or reason is GapReason.WRAPPER_GLUE
    assert formatting.gap_text(reason.value) == reason.label
    row = {"scope": "compiled", "level": "none", "category": reason.value}
    assert formatting.breakdown_label(row) == f"compiled: {reason.label}"
    attributed = formatting.breakdown_label(row | {"scope": "eager", "level": "op"})
    assert attributed == f"eager: ops only: {reason.label}"


def test_evidence_that_is_a_lack_has_a_remedy() -> None:
    lacking = (LineEvidence.STALE, LineEvidence.EAGER_BACKWARD, LineEvidence.ABSENT)
    assert all(each.remedy != NOTHING for each in lacking)


def test_a_reason_of_an_older_or_newer_recording_is_its_own_word() -> None:
    assert formatting.gap_text("hook_failed") == "hook_failed"


def test_only_the_usual_gaps_may_have_no_note() -> None:
    assert set(notes._USUAL) < set(GapReason)


def test_a_state_of_a_stored_record_has_its_colour() -> None:
    assert set(cache._STATE_STYLES) == set(EntryState)


def test_kinds_of_call_sites_are_kinds_of_launches() -> None:
    for kind in SiteKind:
        same = LaunchKind(kind.value)
        assert (same.label, same.meaning) == (kind.label, kind.meaning)


def test_a_row_without_its_words_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="Half 'one' needs words, a meaning and a remedy"):

        class Half(Term, page="words.md", title="half", columns=()):
            ONE = "one"


@pytest.mark.parametrize("name", pages())
def test_a_reference_page_is_what_the_lists_say(name: str) -> None:
    assert (DOCS / name).read_text() == pages()[name](), "run: make reference"


@lru_cache
def recorded_session(name: str) -> Session:
    return load(RECORDED / f"{name}.session.pt.trace.json.gz")


def anchors(page: str) -> list[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
