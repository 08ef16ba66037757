"""The explain page, in the terminal and as Markdown."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from profiler_ext.errors import UsageError
from profiler_ext.exporters.explain import against, making
from profiler_ext.exporters.explain.sections import Page, Section, page
from profiler_ext.exporters.json_output import bounds
from profiler_ext.exporters.tables.files import markdown_escape
from profiler_ext.exporters.terminal.columns import BETWEEN, ONE_LINE
from profiler_ext.exporters.terminal.console import (
    Console,
    Table,
    Text,
    print_line,
    print_wrapped,
    text_console,
)
from profiler_ext.exporters.views.formatting import PHASE_STYLES, middle, short_phase, start
from profiler_ext.exporters.views.summary import SessionLike
from profiler_ext.printable import printable, printable_lines

FORMATS = ("text", "json", "md")
_STYLES = {short_phase(phase): style for phase, style in PHASE_STYLES.items()}
_FIXED_COLUMNS = 2


def explained(
    session: SessionLike,
    name: str,
    format: str = "text",
    width: int = 120,
    top: int | None = None,
    budget: int | None = None,
    earlier: against.Earlier | None = None,
) -> str:
    """Return the explanation of a line, module or kernel as text.

    Args:
        budget: maximum size of ``json``, in bytes; ``None`` for no limit.

    Raises:
        UnclearNameError: The name means several things, or none.
        UsageError: There is no such format.
    """
    if format not in FORMATS:
        raise UsageError(f"there is no format {format!r}; ask for {', '.join(FORMATS)}")
    explanation = making.explain(session, name, top, earlier)
    if format == "json":
        return bounds.answer_text(explanation, budget)
    about = page(explanation, session.analyses[0].recording.settings)
    return page_markdown(about) if format == "md" else page_text(about, width)


def print_page(about: Page, console: Console) -> None:
    """Print the page."""
    console.print(Text(printable(about.title), style="bold"))
    if about.code:
        print_line(console, "    " + printable(about.code.strip()), "cyan")
    for text in about.texts:
        print_wrapped(console, text)
    for section in about.sections:
        console.print()
        _print_section(section, console)


def page_text(about: Page, width: int) -> str:
    """Return the page as plain text."""
    file = io.StringIO()
    print_page(about, text_console(file, width))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def page_markdown(about: Page) -> str:
    """Return the page in GitHub's Markdown; names are escaped."""
    lines = [f"# {markdown_escape(about.title)}", ""]
    if about.code:
        lines += [*_fenced(about.code.strip(), "python"), ""]
    lines += [f"- {markdown_escape(text)}" for text in about.texts]
    for section in about.sections:
        lines += ["", f"## {markdown_escape(section.title)}", "", *_section_lines(section)]
    return "\n".join(lines) + "\n"


def _print_section(section: Section, console: Console) -> None:
    console.print(Text(printable(section.title), style="bold"))
    if section.rows:
        console.print(_table(section, console))
    for line in printable_lines(section.code).splitlines():
        print_line(console, "    " + line, "dim")
    for text in section.texts:
        print_wrapped(console, text, "dim" if text.startswith("(") else "")


def _table(section: Section, console: Console) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    name, *numbers = section.heads
    widths = [max(map(len, column)) for column in zip(section.heads, *section.rows, strict=True)]
    shown = _columns(widths[1:], console.width)
    taken = sum(widths[at + 1] + BETWEEN for at in shown)
    room = max(min(widths[0], console.width - taken), 1)
    table.add_column(name, width=room, **ONE_LINE)
    for at in shown:
        head = Text(numbers[at], style=_STYLES.get(numbers[at], ""))
        table.add_column(head, justify="right", width=widths[at + 1], **ONE_LINE)
    cut = middle if section.keeps_end else start
    for first, *others in section.rows:
        cells = (Text(others[at]) for at in shown)
        table.add_row(Text(cut(printable(first), room)), *cells)
    return table


def _columns(widths: Sequence[int], width: int) -> list[int]:
    """Return the number columns that fit half of the width; the first two always do."""
    shown, taken = [], 0
    for at, each in enumerate(widths):
        if at < _FIXED_COLUMNS or taken + each + BETWEEN <= width // 2:
            shown.append(at)
            taken += each + BETWEEN
    return shown


def _section_lines(section: Section) -> list[str]:
    lines = []
    if section.rows:
        rule = ["---", *("---:" for _ in section.heads[1:])]
        cells = [section.heads, rule, *(tuple(map(markdown_escape, row)) for row in section.rows)]
        lines += [f"| {' | '.join(each)} |" for each in cells]
        lines += [""] if section.texts else []
    lines += [f"- {markdown_escape(text)}" for text in section.texts]
    if section.code:
        lines += ["", *_fenced(section.code, "")]
    return lines


def _fenced(code: str, language: str) -> list[str]:
    """Return code between fences longer than any within it."""
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, printable_lines(code), fence]
