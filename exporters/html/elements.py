"""HTML elements, for pages and notebooks: names are always escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from profiler_ext.printable import printable


def text(value: str) -> str:
    """Return a name escaped, as text or as an attribute's value."""
    return escape(printable(value))


def tag(name: str, *children: str, **attributes: str | None) -> str:
    """Return an element; children are markup, attributes are escaped, ``None`` is left out.

    ``class_`` stands for ``class``, ``data_rank`` for ``data-rank``.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{''.join(children)}</{name}>"


def quiet(value: str, name: str = "p") -> str:
    """Return muted text."""
    return tag(name, text(value), class_="quiet")


@dataclass(frozen=True, slots=True)
class Head:
    """A column heading, and the class of its cells: ``number``, ``track``, ``what``."""

    title: str
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class TableRow:
    """The cells of a row as markup, and the class of the row."""

    cells: Sequence[str]
    kind: str | None = None


def table(
    heads: Sequence[Head],
    rows: Iterable[TableRow],
    total: TableRow | None = None,
    styles: Mapping[str | None, str] | None = None,
) -> str:
    """Return a table; ``styles`` by column class replace classes where no style sheet has them."""

    def line(cell: str, cells: Iterable[str], kind: str | None = None) -> str:
        made = (tag(cell, each, **attributes) for each, attributes in zip(cells, of, strict=True))
        return tag("tr", *made, class_=kind)

    of: list[dict[str, str | None]] = [
        {"class_": head.kind} if styles is None else {"style": styles[head.kind]} for head in heads
    ]
    head = tag("thead", line("th", (text(each.title) for each in heads)))
    body = tag("tbody", *(line("td", row.cells, row.kind) for row in rows))
    foot = "" if total is None else tag("tfoot", line("td", total.cells, total.kind))
    return tag("table", head, body, foot)


def section(name: str | None, title: str, body: str, kind: str | None = None) -> str:
    """Return a section of a page, a link target if it has a name."""
    head = tag("h2", text(title)) if title else ""
    return tag("section", head, body, id=name, class_=kind) + "\n"


def folding_section(name: str, title: str, count: str, body: str, is_open: bool = False) -> str:
    """Return a collapsible section with a count."""
    summary = f"{tag('h2', text(title))} {quiet(count, 'span')}"
    return tag("section", details(summary, body, is_open), id=name)


def details(summary: str, body: str, is_open: bool = False, **attributes: str | None) -> str:
    """Return collapsible markup."""
    opened = "" if is_open else None
    return tag("details", tag("summary", summary), body, open=opened, **attributes)


def numbered(items: Sequence[str], shown: int, count: int, how: str) -> str:
    """Return a numbered list, collapsed after the first ``shown`` items.

    Args:
        items: the first of ``count``, as markup.
        how: how to see all, where there are more.
    """
    if not items:
        return ""
    rest = tag("ol", *items[shown:], start=str(shown + 1))
    if count > len(items):
        rest += tag("p", text(f"and {count - len(items):,} more: {how}"))
    more = details(f"{count - shown:,} more", rest) if count > shown else ""
    return tag("ol", *items[:shown]) + more


def bar(parts: Mapping[str, float], most: float, titles: Mapping[str, str]) -> str:
    """Return a stacked bar; ``most`` fills it."""
    pieces = (
        tag("span", class_=kind, style=f"width:{100 * part / most:.3f}%", title=titles[kind])
        for kind, part in parts.items()
        if part
    )
    return tag("div", *pieces, class_="bar")
