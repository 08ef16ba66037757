"""Help of every command: it fits a terminal, tells each default, and its examples can be run."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler_ext import cli, errors
from profiler_ext.cli.common import Parser
from profiler_ext.errors import ProfilerExtError, UnclearNameError

COMMANDS = [*cli._COMMANDS]
ROOT = Path(__file__).parents[1]


def parser_of(name: str) -> Parser:
    parser = Parser(prog=f"profiler-ext {name}")
    cli._module(name).add_options(parser)
    return parser


def helped(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS), ("cache", "prune")])
def test_help_fits_80_columns_of_any_terminal(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in ("60", "80", "300"):
        monkeypatch.setenv("COLUMNS", columns)
        assert [line for line in helped(capsys, *words).splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_says_what_it_does_and_what_it_is_without(name: str) -> None:
    for action in parser_of(name)._actions:
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        assert action.help, action.dest
        is_switch = action.nargs == 0 or action.required
        if action.option_strings and not is_switch and action.default not in (None, []):
            assert "(default: " in action.help, action.option_strings


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "doctor"])
def test_each_example_can_be_read_as_it_stands(name: str) -> None:
    examples = re.findall(r"^  (.*profiler-ext .*)$", parser_of(name).epilog or "", re.M)
    assert examples
    for example in examples:
        words = shlex.split(example.partition(" > ~")[0])
        at = words.index("profiler-ext")
        assert words[at + 1] == name
        parser_of(name).parse_args(words[at + 2 :])


def test_the_list_of_commands_names_each_with_what_it_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = helped(capsys)
    for name in COMMANDS:
        assert re.search(rf"^  {name} +{re.escape(cli._module(name).HELP)}$", printed, re.M)


HEAVY = {"torch", "pandas", "numpy", "rich", "msgspec"}


@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["run", "-o", "out", "fails.py"]], ids=" ".join
)
def test_nothing_is_imported_before_it_is_needed(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("import there_is_no_such_package")
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr))\n"
        f"from profiler_ext.cli import main\nsys.exit(main({words!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("reprt", "argument COMMAND: invalid choice: 'reprt'; did you mean report? ("),
        ("report --by modul", "argument --by: invalid choice: 'modul'; did you mean module? ("),
        ("report --formt=json", "unrecognized arguments: --formt=json; did you mean --format? ("),
        ("cache lst", "argument ACTION: invalid choice: 'lst'; did you mean list? ("),
        ("report S --top x9", "argument --top: invalid int value: 'x9' ("),
        ("report S --jobs 0", "argument --jobs: '0' must be a positive integer ("),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(
    words: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words.split())
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert f"error: {error}see profiler-ext" in message and message.endswith(" --help)\n")


def test_a_word_that_is_like_none_gets_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["zzz"])
    printed = capsys.readouterr().err
    assert "did you mean" not in printed
    assert all(name in printed for name in COMMANDS)


def test_each_error_ends_with_a_page_that_is_there() -> None:
    for error in errors_of(ProfilerExtError):
        page, _, anchor = error("").page.partition("#")
        text = (ROOT / page).read_text()
        assert not anchor or f"\n## {anchor}\n" in text, error


def test_an_error_names_no_page_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(errors, "_DOCS", tmp_path / "docs")  # as the wheel has none
    assert cli.main(["report", str(tmp_path / "missing")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("check the path") and "docs" not in line and "None" not in line


def errors_of(base: type[ProfilerExtError]) -> list[Callable[[str], ProfilerExtError]]:
    below = [each for kind in base.__subclasses__() for each in errors_of(kind)]
    return below if base is UnclearNameError else [base, *below]
