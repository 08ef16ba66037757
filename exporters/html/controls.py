"""Owns the choosers of report.html: of rank and step, and whether times are of one or of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from profiler_ext.exporters.html.slices import Choices


def controls(chosen: Choices) -> str:
    """Return the choosers, and what there was no room for.

    Args:
        chosen: what the page can be narrowed to.
    """
    parts = (
        _chooser("rank", chosen.ranks, chosen.all_ranks),
        _chooser("step", chosen.steps, chosen.all_steps),
        _unit(chosen.slices[0].spans),
        *_left_out("ranks", len(chosen.ranks), chosen.all_ranks),
        *_left_out("steps", len(chosen.steps), chosen.all_steps),
    )
    return "".join(parts)


def _chooser(name: str, there: Mapping[int, str], every: int) -> str:
    if every < 2:
        return ""
    options = "".join(
        f'<option value="{number}">{number}{f" ({word})" if word else ""}</option>'
        for number, word in there.items()
    )
    first = f'<option value="">all {every:,}</option>'
    return f'<label>{name} <select id="{name}">{first}{options}</select></label> '


def _unit(spans: int) -> str:
    if spans < 2:
        return ""
    of_all = f'<option value="sum">sum of {spans:,} steps</option>'
    return (
        '<label>times <select id="unit"><option value="mean">mean of a step</option>'
        f"{of_all}</select></label> "
    )


def _left_out(name: str, shown: int, every: int) -> Iterable[str]:
    if shown < every:
        yield (
            f'<span class="quiet">{shown} of {every:,} {name} can be chosen: the slowest, the '
            "median, the fastest</span> "
        )
