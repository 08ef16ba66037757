"""What people read is in the field's words: no screen or help text has a word of this list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from profiler_ext.cli import _COMMANDS, main
from profiler_ext.sessions.session import load

FIXTURES = Path(__file__).parent / "fixtures"
RECORDED = sorted(FIXTURES.rglob("*session.pt.trace.json.gz"))
NOT_SAID = re.compile(
    r"\b(led|led to|told|anew|heard|borne out|learnt|what to do first|nothing to do first|"
    r"wall time of the steps|do not add|in letters|with all that is below them)\b",
    re.IGNORECASE,
)


def unwanted(text: str) -> list[str]:
    """Return the words that no native engineer would use, each with what stands around it."""
    plain = " ".join(text.split())
    return [
        plain[max(found.start() - 40, 0) : found.end() + 40] for found in NOT_SAID.finditer(plain)
    ]


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
