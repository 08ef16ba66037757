"""How the commands of a page are run, or at least read by the real parser."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

from profiler_ext import cli

_OURS = ("profiler-ext",)
_MODULE = "-m profiler_ext"
_PLAIN = ("cat", "ls", "zcat")
"""What else a page may have run: what only shows files."""
_CUTS = {"head": lambda count: slice(count), "tail": lambda count: slice(-count, None)}
ANY_LINES = "..."
STATUS = "echo $?"


@dataclass
class Shell:
    """A shell in which the commands of a page run one after the other.

    Attributes:
        status: how the last one ended.
    """

    status: int = field(default=0)

    def run(self, line: str) -> str:
        """Run a command in the working folder.

        Args:
            line: the command; ``| head -N`` and ``| tail -N`` cut what it prints.

        Returns:
            What it printed, on both streams.

        Raises:
            ValueError: A page may not have that run.
        """
        command, _, cut = line.partition(" | ")
        if command == STATUS:
            return f"{self.status}\n"
        lines = self._printed(shlex.split(command, comments=True)).splitlines(keepends=True)
        which, _, count = cut.partition(" -")
        return "".join(lines[_CUTS[which](int(count))] if cut else lines)

    def _printed(self, words: list[str]) -> str:
        if words[0] in _PLAIN:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            self.status = done.returncode
            return done.stdout + done.stderr
        if words[0] not in _OURS:
            raise ValueError(f"say why {words[0]!r} is not run: <!-- not run: REASON -->")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                self.status = cli.main(words[1:])
            except SystemExit as ended:
                self.status = int(ended.code or 0)
        return printed.getvalue()


def commands(source: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with the output that is shown.

    Args:
        source: the block.
    """
    joined = source.replace("\\\n", "")
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        yield line, shown


def fits(shown: str, printed: str) -> bool:
    """Tell whether a command prints what is shown; nothing that is shown says nothing.

    Args:
        shown: what the page has.
        printed: what was printed.
    """
    lines = [re.escape(line.rstrip()) for line in shown.strip("\n").splitlines()]
    pattern = "\n".join(r"(?:.*\n)*?.*" if line == re.escape(ANY_LINES) else line for line in lines)
    clean = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    return not shown.strip() or re.fullmatch(pattern, clean) is not None


def check_readable(line: str) -> None:
    """Let the real parser read a command that is not run.

    Args:
        line: a command, of ours or another's that has ours in it.

    Raises:
        ValueError: It is not read.
    """
    words = shlex.split(line, comments=True)
    text = " ".join(words)
    at = next((number for number, word in enumerate(words) if word in _OURS), None)
    if at is None and _MODULE in text:
        at = next(n for n, word in enumerate(words) if word == "profiler_ext")
    if at is None:
        return
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            cli._parsed(words[at + 1 :])
    except SystemExit as ended:
        if ended.code:
            raise ValueError(f"{line!r} is not read: {output.getvalue()}") from None
