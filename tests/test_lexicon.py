"""What people read is in the field's words: no screen, help or page has a word of these lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from profiler_ext.cli import _COMMANDS, main
from profiler_ext.sessions.session import load

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "tests" / "fixtures"
RECORDED = sorted(FIXTURES.rglob("*session.pt.trace.json.gz"))
UNWANTED = re.compile(
    r"\b(led|led to|told|anew|heard|borne out|learnt|what to do first|nothing to do first|"
    r"wall time of the steps|do not add|in letters|with all that is below them)\b",
    re.IGNORECASE,
)
"""Of every screen and every page."""
NOT_WRITTEN = re.compile(
    r"\b(led|told|anew|heard|borne out|learnt|what to do first|what is to be done|in letters|"
    r"with all that is below|ledgers?|beside|mended|amid|shall|whoever|thereof|"
    r"leads? [^.|]{0,60}\bto (?:its |the |their )?(?:source )?lines?|"
    r"(?:read|loaded|kept|goes|go|compiled|stays|counted|taken|reads|is|are) whole|"
    r"[0-9] (?:ns|us|ms|s|seconds|milliseconds|launches|[TG]?FLOPs?|MiB) a step)\b",
    re.IGNORECASE,
)
"""Of the pages, whose prose has no figures of its own to fit into a line."""
PAGES = (
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "profiler_ext/SKILL.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
NO_PROSE = re.compile(r"^```.*?^```$|<!--.*?-->|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")


def unwanted(text: str, words: re.Pattern[str] = UNWANTED) -> list[str]:
    """Return the words that no native engineer would use, each with its context."""
    plain = " ".join(text.split())
    return [plain[max(found.start() - 40, 0) : found.end() + 40] for found in words.finditer(plain)]


def prose(page: Path) -> str:
    """Return what a page says in words; of the changelog the newest entry."""
    text = page.read_text()
    if page.name == "CHANGELOG.md":
        text = "".join(re.split(r"^## ", text, flags=re.MULTILINE)[1:2])
    return CODE.sub("`", NO_PROSE.sub("", text))


@pytest.mark.sweep
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.split(".session")[0])
def test_a_report_and_its_notes_are_in_the_words_of_the_field(path: Path) -> None:
    session = load(path)
    assert unwanted("\n".join((session.report(width=200), *session.notes))) == []


@pytest.mark.parametrize("command", _COMMANDS)
def test_the_help_of_a_command_is_in_the_words_of_the_field(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert unwanted(capsys.readouterr().out) == []


def test_a_word_of_the_list_is_found() -> None:
    assert unwanted("each kernel is led to\nits line") == ["each kernel is led to its line"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_the_words_of_the_field(page: Path) -> None:
    assert unwanted(prose(page), NOT_WRITTEN) == []


def test_a_word_in_code_or_output_is_not_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("It is told.\n```text\n1 ms a step, led\n```\n`--by ledger` <!-- anew -->\n")
    assert unwanted(prose(page), NOT_WRITTEN) == ["It is told. `"]


def words(*pages: Path) -> int:
    return sum(len(page.read_text().split()) for page in pages)


def test_the_readme_and_the_start_are_short() -> None:
    assert words(ROOT / "README.md") <= 900
    minutes = words(*(ROOT / "docs" / "start").glob("*.md")) / 200
    assert minutes <= 10
