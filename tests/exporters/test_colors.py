"""Phases and kinds of time have one colour each, legible and told apart by colour-blind eyes."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from profiler_ext.exporters.terminal.tables import SCOPE_STYLES
from profiler_ext.exporters.views.formatting import (
    PHASE_COLORS,
    PHASE_STYLES,
    SCOPE_COLORS,
    scheme_style_sheet,
    style_sheet,
)
from profiler_ext.records.vocabulary import Phase, Scope

STATIC = Path(__file__).parents[2] / "exporters/html/static"
PAGES = {"light": ("#ffffff",), "dark": ("#1e2125",), "middle": ("#ffffff", "#1e2125")}
LEAST_CONTRAST = 3.0  # WCAG 2.2, 1.4.11: what one must see to understand a picture
LEAST_FOR_WORDS = 4.5  # the same, 1.4.3
LEAST_DISTANCE = 0.09  # in OKLab, where 0.02 is just seen side by side
# Machado, Oliveira, Fernandes (2009), severity 1.0, of linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
TO_LAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def linear(color):
    values = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    lights = sorted(float(linear(each) @ [0.2126, 0.7152, 0.0722]) for each in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def oklab(color, sight):
    seen = np.clip(linear(color) @ np.array(SIGHT[sight]).T, 0, 1)
    return np.cbrt(seen @ np.array(TO_CONES).T) @ np.array(TO_LAB).T


@pytest.mark.parametrize("page", PAGES)
def test_every_colour_stands_out_from_its_page(page):
    busy = {scope: color for scope, color in SCOPE_COLORS.items() if scope != Scope.IDLE}
    found = {
        key: min(contrast(getattr(color, page), paper) for paper in PAGES[page])
        for key, color in (*PHASE_COLORS.items(), *busy.items())
    }
    assert {key: value for key, value in found.items() if value < LEAST_CONTRAST} == {}


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("page", PAGES)
def test_phases_are_distinguished(page, sight):
    colors = {phase: oklab(getattr(color, page), sight) for phase, color in PHASE_COLORS.items()}
    near = {
        (one, other): round(float(np.linalg.norm(colors[one] - colors[other])), 3)
        for one, other in combinations(colors, 2)
    }
    assert {pair: distance for pair, distance in near.items() if distance < LEAST_DISTANCE} == {}


def mixed(color, paper, part):
    """Mix two colours as CSS does in OKLab."""
    back = np.linalg.inv(np.array(TO_LAB).T)
    lab = part * oklab(color, "normal") + (1 - part) * oklab(paper, "normal")
    light = np.clip((lab @ back) ** 3 @ np.linalg.inv(np.array(TO_CONES).T), 0, 1)
    values = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(255 * value):02x}" for value in values)


@pytest.mark.parametrize("page", ["light", "dark"])
def test_words_are_legible_on_the_page_and_on_all_that_is_coloured(page):
    sheet = (STATIC / "report.css").read_text()
    variables = dict(re.findall(r"--(\w+): (#\w{3,6});", sheet.split("}")[page == "dark"]))
    paper, ink = (variables[name].ljust(7, "f") for name in ("card", "ink"))
    found = {name: contrast(variables[name], paper) for name in ("ink", "quiet", "link", "warn")}
    heat = int(re.search(r"HEAT = (\d+);", (STATIC / "source.js").read_text())[1]) / 100
    frame = float(re.search(r"module: ([\d.]+)", (STATIC / "flame.js").read_text())[1])
    drawn = dict.fromkeys(Phase, heat) | {Phase.FORWARD: frame, Phase.BACKWARD: frame}
    for phase, part in drawn.items():
        color = getattr(PHASE_COLORS[phase], page)
        found[phase] = contrast(ink, mixed(color, paper, max(part, heat)))
    assert {name: value for name, value in found.items() if value < LEAST_FOR_WORDS} == {}


def test_every_view_has_the_colours_of_the_table():
    assert set(PHASE_COLORS) == set(Phase) and set(SCOPE_COLORS) == set(Scope)
    assert {p: c.middle for p, c in PHASE_COLORS.items()} == PHASE_STYLES
    assert {s: c.middle for s, c in SCOPE_COLORS.items()} == SCOPE_STYLES
    board, page = scheme_style_sheet(), style_sheet()
    for key, color in (*PHASE_COLORS.items(), *SCOPE_COLORS.items()):
        assert f"--{key}: {color.light};" in page and f"--{key}: {color.dark};" in page
        assert f"--{key}: light-dark({color.light}, {color.dark});" in board
        assert all(f".{key} {{ background: var(--{key});" in sheet for sheet in (board, page))
