"""The numbers and short labels that are drawn over a picture, and its palette.

A page of Chromium gets them as elements over its own, an SVG of rich as shapes beside its lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image

_COLORS = 128
_INK, _PAPER = "#b3261e", "#fff8e1"
_CHARACTER, _LINE, _FIRST = 12.2, 24.4, 18.5
"""What a column and a line of rich's terminal measure, and where the first line's text stands."""
_DRAW = """([marks, legend, ink, paper]) => {
  const put = (parent, style, text) => {
    const each = document.createElement('div');
    Object.assign(each.style, style); each.textContent = text ?? ''; parent.append(each);
    return each;
  };
  const dot = {background: ink, color: 'white', borderRadius: '50%', width: '24px', height: '24px',
    font: 'bold 15px/24px sans-serif', textAlign: 'center', flex: 'none'};
  const all = put(document.body, {}); all.id = 'marks';
  const panel = put(all, {position: 'fixed', left: legend[0] + 'px',
    top: legend[1] + 'px', zIndex: 1e6, background: paper, border: '2px solid ' + ink,
    borderRadius: '6px', padding: '6px 12px'});
  marks.forEach(([x, y, label], at) => {
    put(all, {...dot, position: 'fixed', left: x - 12 + 'px', top: y - 12 + 'px',
      zIndex: 1e6, boxShadow: '0 0 0 2px white'}, at + 1);
    const row = put(panel, {display: 'flex', gap: '10px', alignItems: 'center', margin: '4px 0'});
    put(row, dot, at + 1);
    put(row, {font: '16px sans-serif', color: '#1d1d1d'}, label);
  });
}"""

_TEXT = """each => {
  const text = document.createRange(); text.selectNodeContents(each);
  const [inner, outer] = [text.getBoundingClientRect(), each.getBoundingClientRect()];
  return [inner.left - outer.left, inner.width];
}"""
"""Where the text of an element stands in it, and how wide it is."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A number over a picture, and what it says.

    Attributes:
        at: where its middle stands, in pixels from the left and from the top.
        label: what it says, in a few words.
    """

    at: tuple[float, float]
    label: str


def next_to(frame: Any, spots: Sequence[tuple[str, str, str]]) -> list[Mark]:
    """Return marks beside elements of a page.

    Args:
        frame: Playwright's page, or a frame of it.
        spots: a selector, ``left`` or ``right`` of its first element, and what the mark says.
    """
    marks = []
    for selector, side, label in spots:
        element = frame.locator(selector).first
        box, (before, wide) = element.bounding_box(), element.evaluate(_TEXT)
        x = box["x"] + before + (wide + 18 if side == "right" else -18)
        marks.append(Mark((x, box["y"] + box["height"] / 2), label))
    return marks


def shoot(page: Any, target: Path, marks: list[Mark], legend: tuple[int, int]) -> None:
    """Draw marks over a page, with their labels in one place, and keep its picture.

    Args:
        page: Playwright's page.
        target: the file.
        marks: the marks, in order.
        legend: where the labels stand, from the left and from the top.
    """
    drawn = [(*mark.at, mark.label) for mark in marks]
    page.evaluate(_DRAW, [drawn, legend, _INK, _PAPER])
    page.screenshot(path=target)
    page.evaluate("document.getElementById('marks').remove()")
    with Image.open(target) as taken:
        small = taken.convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE)
    small.save(target, optimize=True)


def with_labels(svg: str, lines: list[str], labels: dict[str, str]) -> str:
    """Return a terminal of rich's with a number and a label after some of its lines.

    Args:
        svg: the picture.
        lines: its text.
        labels: what to say after the first line that begins so.
    """
    shapes = []
    for number, (start, label) in enumerate(labels.items(), 1):
        row = next(at for at, line in enumerate(lines) if line.startswith(start))
        shapes.append(_shape(number, label, len(lines[row].rstrip()) + 2, row))
    before, inside, after = svg.rpartition("</g>\n    </g>")
    return f"{before}{''.join(shapes)}{inside}{after}"


def _shape(number: int, label: str, column: int, row: int) -> str:
    x, y = column * _CHARACTER, _FIRST + row * _LINE
    wide = 44 + len(label) * 8.8
    return (
        f'<g><rect x="{x:.0f}" y="{y - 17:.1f}" width="{wide:.0f}" height="23" rx="5" '
        f'fill="{_PAPER}" stroke="{_INK}"/><circle cx="{x + 15:.0f}" cy="{y - 5.5:.1f}" r="9" '
        f'fill="{_INK}"/><text x="{x + 15:.0f}" y="{y - 0.5:.1f}" text-anchor="middle" '
        f'fill="white" font-family="sans-serif" font-size="14" font-weight="bold">{number}</text>'
        f'<text x="{x + 32:.0f}" y="{y:.1f}" fill="#1d1d1d" font-family="sans-serif" '
        f'font-size="16">{escape(label)}</text></g>'
    )
