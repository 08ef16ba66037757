"""The rule for norms, activations, softmaxes, convolutions that are written out in several ops."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from functools import partial
from typing import Final

import numpy as np

from profiler_ext.findings.autograd_nodes import backward_of
from profiler_ext.findings.code_of_lines import products_of_patches
from profiler_ext.findings.facts import Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.lines_of_functions import Function, functions_of
from profiler_ext.findings.ranking import MIN_FRACTION
from profiler_ext.findings.rule import (
    NO_ROWS,
    ON_CPU,
    Candidate,
    Rule,
    count_and_time,
    removal,
)
from profiler_ext.findings.rules.dtype_conversion import is_conversion
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_NATIVE = re.compile(r"at::native::|softmax_warp")
_OWN = re.compile(r"aten::(\w+?)_?$")
_COPIES = frozenset({"copy", "_to_copy", "clone", "fill"})
# Another spelling of the same
_ALIKE: Final = {
    "square": "pow",
    "multiply": "mul",
    "true_divide": "div",
    "subtract": "sub",
    "var_mean": "var",
    "std_mean": "std",
    "max": "amax",
    "special_erf": "erf",
}
_COPIED = "aten::copy_"
_PATCHES: Final = frozenset({"aten::im2col", "aten::col2im"})
_RMS: Final = "an RMS norm"
_FUSED_RMS = (2, 9)  # before that torch computes ``F.rms_norm`` step by step, too
# A fused norm's backward has a kernel for the input's gradient, and one for the weight's
_OF_NORM: Final = frozenset({"norm", "rms"})
# What runs in a row, in the names of ops, and the op of torch that computes the same
_WRITTEN: Final = (
    (
        r"(?:mean )+sub (?:(?:mean|sub) )?(?:(?:pow|mul) mean|std|var)(?: sub)?(?: add)?"
        r"(?: rsqrt(?: sub)? mul|(?: sqrt)?(?: add)?(?: sub)? div)",
        "a norm",
        "norm",
    ),
    (
        r"(?:mean (?:var|std)|(?:var|std)(?: mean)?) "
        r"(?:sub (?:mul )?(?:add )?(?:rsqrt mul|(?:sqrt )?div)|"
        r"(?:add )?(?:rsqrt sub mul|sqrt sub div)|add sub div)",
        "a norm",
        "norm",
    ),
    (r"(?:pow|mul) mean (?:add )?(?:rsqrt mul|sqrt (?:reciprocal mul|div))", _RMS, "rms"),
    (r"(?:pow|mul)(?: mul)* add(?: mul)* tanh add(?: mul)+", "GELU", "gelu_tanh"),
    (r"(?:div|mul) erf add(?: mul)+", "GELU", "gelu"),
    (r"softplus tanh mul", "Mish", "mish"),
    (r"(?<!exp )(?:amax sub )?exp sum div", "a softmax", "softmax"),
    (r"_?softmax (?:add )?log", "a log softmax", "log_softmax"),
    (r"sigmoid mul", "SiLU", "silu"),
    (r"rsub mul mul add", "an interpolation", "lerp"),
)
_PATTERNS: Final = tuple((re.compile(rf"\b{text}\b"), what, by) for text, what, by in _WRITTEN)
# Whether the operands of some are one tensor, only the text of the line tells
_OPERAND = r"(?P<x>[A-Za-z_][\w.]*)"
_SWISH = re.compile(
    rf"{_OPERAND}\s*\*\s*(?:\w+\.)*sigmoid\(\s*(?P=x)\s*\)|"
    rf"{_OPERAND.replace('<x>', '<y>')}\s*\*\s*(?P=y)\.sigmoid\(\)|"
    rf"(?:\w+\.)*sigmoid\(\s*{_OPERAND.replace('<x>', '<z>')}\s*\)\s*\*\s*(?P=z)\b(?![.\[(])"
)
_LERP = re.compile(
    r"\(\s*1(?:\.0*)?\s*-\s*(?P<x>[A-Za-z_][\w.]*)\s*\)[^+]*\+[^+]*(?<![\w.])(?P=x)(?![\w.(])|"
    r"(?<![\w.])(?P<y>[A-Za-z_][\w.]*)\s*\*[^+]*\+\s*\(\s*1(?:\.0*)?\s*-\s*(?P=y)\s*\)"
)
_SAME_OPERAND: Final = {"silu": _SWISH, "lerp": _LERP}
_REMEDIES: Final = {
    "norm": "F.layer_norm, F.group_norm or F.batch_norm: one kernel",
    "rms": "F.rms_norm(x, shape, weight): one kernel",
    "gelu": "F.gelu(x): one kernel",
    "gelu_tanh": "F.gelu(x, approximate='tanh'): one kernel",
    "mish": "F.mish(x): one kernel",
    "silu": "F.silu(x): one kernel",
    "softmax": "torch.softmax(x, dim): one kernel",
    "log_softmax": "F.log_softmax(x, dim), or F.cross_entropy of x",
    "lerp": "torch.lerp(a, b, weight): one kernel",
}
_Match = tuple[str, str, Ints]  # what is written out, its remedy, and the launches of it


def _judge(facts: Facts) -> Iterable[Candidate]:
    return _written_out(facts)


def launches_written_out(facts: Facts) -> Ints:
    """Return the launches of ops that are written out, where enough is at stake to say so."""
    least_ns = MIN_FRACTION * facts.training.step_ns
    said = (each for each in _written_out(facts) if each.est_saving_ns >= least_ns)
    return np.concatenate([NO_ROWS, *(each.launches for each in said)])


def _written_out(facts: Facts) -> tuple[Candidate, ...]:
    return facts.analysis.derived.once(
        "written out", lambda: (*_ops_in_a_row(facts), *_convolutions(facts))
    )


def _ops_in_a_row(facts: Facts) -> Iterator[Candidate]:
    phase = facts.launches.phase
    behind = np.flatnonzero(facts.in_steps(phase.where(Phase.BACKWARD)))
    behind = behind[facts.named(_is_native)[behind]]
    found: dict[tuple[str | None, str | None, str], list[_Match]] = {}
    for run in _runs(facts):
        for each in _matches(facts, run):
            place = facts.place(int(each[2][0]))
            found.setdefault((place.file, place.function, each[0]), []).append(each)
    for (_, _, what), matches in found.items():
        if what == _RMS and not _has_rms_norm(facts):
            continue
        forward = [rows for *_, rows in matches]
        gradients = [_gradients(facts, rows, behind) for rows in forward]
        every = np.unique(np.concatenate([*forward, *gradients]))
        count = 2 if matches[0][1] in _OF_NORM else 1
        gone = [_without_longest(facts, own, 1) for own in forward]
        gone += [_without_longest(facts, own, count) for own in gradients]
        rows = np.unique(np.concatenate(gone))
        saved_ns = facts.removed_per_step_ns(rows)
        ops = " ".join(_op(facts, row) for row in forward[0].tolist())
        yield Candidate(
            summary=f"{what} is written out in several ops",
            est_saving_ns=saved_ns,
            confidence=Confidence.ESTIMATED,
            remedy=_REMEDIES[matches[0][1]],
            location=location_of(facts.place(facts.longest(np.concatenate(forward)))),
            evidence=(
                *count_and_time(facts, every),
                Figure("ops", ops, FigureUnit.TEXT),
                Figure("times a step", len(matches) // len(facts.analysis.steps)),
            ),
            launches=every,
        )


def _convolutions(facts: Facts) -> Iterator[Candidate]:
    """Yield the patches that a product with a weight of the module reads, and copies for it."""
    is_eager = facts.launches.scope.where(Scope.EAGER)
    is_copy = facts.of_op(_COPIED.__eq__) & ~facts.named(is_conversion)
    if not any(place.aten_op in _PATCHES for place in facts.analysis.places):
        return
    for function, codes in functions_of(facts).items():
        products = products_of_patches(codes)
        if not products:
            continue

        is_own = facts.mainly(partial(_is_of, function))
        is_patches = is_own & facts.mainly(lambda place: place.aten_op in _PATCHES)
        is_copied = is_own & is_copy & facts.mainly(partial(_is_at, products))
        rows = np.flatnonzero(facts.in_steps(is_eager & (is_patches | is_copied)))
        if is_patches[rows].any():
            yield removal(
                facts,
                rows,
                "a convolution is written out in unfold and a product",
                "F.conv2d(x, weight, padding=...): it writes no patches",
                confidence=Confidence.ESTIMATED,
            )


def _is_of(function: Function, place: Place) -> bool:
    return (place.file, place.function) == function


def _is_at(lines: Container[int], place: Place) -> bool:
    return place.line is not None and place.line in lines


def _gradients(facts: Facts, forward: Ints, behind: Ints) -> Ints:
    calls = np.unique(facts.called_ops(forward))
    calls = calls[calls >= 0]
    return backward_of(facts, calls, behind) if len(calls) and len(behind) else NO_ROWS


def _without_longest(facts: Facts, rows: Ints, count: int) -> Ints:
    """Return the launches that fewer kernels would replace, but for the longest ones."""
    return rows[np.argsort(facts.launches.duration_ns[rows], kind="stable")][
        : max(len(rows) - count, 0)
    ]


def _has_rms_norm(facts: Facts) -> bool:
    version = re.match(r"(\d+)\.(\d+)", facts.analysis.recording.settings.torch_version or "")
    return version is None or (int(version[1]), int(version[2])) >= _FUSED_RMS


def _matches(facts: Facts, run: Ints) -> Iterator[_Match]:
    """Yield what a run of launches writes out, of several patterns the first that is there."""
    text, begins = "", {}
    for at, row in enumerate(run.tolist()):
        name = _op(facts, row)
        if name not in _COPIES:
            begins[len(text)] = at
            text += f"{name} "
    taken = np.zeros(len(run), np.bool_)
    for pattern, what, remedy in _PATTERNS:
        for match in pattern.finditer(text):
            inside = [at for begin, at in begins.items() if match.start() <= begin < match.end()]
            rows = slice(inside[0], inside[-1] + 1)
            if not taken[rows].any() and _is_so_by_text(facts, remedy, int(run[inside[0]])):
                taken[rows] = True
                yield what, remedy, run[rows]


def _is_so_by_text(facts: Facts, remedy: str, row: int) -> bool:
    known = _SAME_OPERAND.get(remedy)
    return known is None or known.search(facts.place(row).code or "") is not None


def _is_native(name: str) -> bool:
    return _NATIVE.search(name) is not None


def _op(facts: Facts, row: int) -> str:
    found = _OWN.match(facts.innermost_op(row))
    name = found[1] if found else ""
    return _ALIKE.get(name, name)


def _runs(facts: Facts) -> Iterator[Ints]:
    """Yield the launches of torch's ops in a forward that run in a row, of one function each."""
    table = facts.launches
    is_own = table.scope.where(Scope.EAGER) & table.phase.where(Phase.FORWARD)
    is_own &= facts.named(_is_native) & (facts.main_place >= 0)
    is_own = facts.in_steps(is_own)
    order = np.lexsort((table.start_ns, table.stream.filled(-1), table.device))
    run: list[int] = []
    before = None
    for row in order.tolist():
        place = facts.place(row) if is_own[row] else None
        here = None
        if place is not None and place.line is not None:
            here = (place.file, place.function, place.module, table.step[row])
        if run and here != before:
            yield np.array(run, np.int64)
            run = []
        before = here
        if here is not None:
            run.append(row)
    if run:
        yield np.array(run, np.int64)


RULE = Rule(
    name="written_out",
    title="Ops of torch that are written out",
    means="Eager kernels of one function run in a row, in the order in which a norm, GELU, SiLU, "
    "Mish, a softmax or an interpolation is computed step by step: a product, a mean, a "
    "reciprocal root and a product, for example. Or a product of `unfold` and a weight of the "
    "module, by the text of both lines, which is a convolution.",
    because="Each op reads what the one before wrote to memory, and the backward has an op for "
    "each, too. Torch has one op with one kernel for all of it. Patches of 3 x 3 are nine times as "
    "large as what they are taken from, and their gradient is written and added up again.",
    remedy="`F.rms_norm`, `F.layer_norm`, `F.gelu`, `F.silu`, `torch.softmax`, `F.log_softmax`, "
    "`torch.lerp`, `F.conv2d`. `torch.compile` fuses the ops of the others as well. "
    "Torch's norms round once, and not after each op, so that results may differ in the last "
    "bits.",
    saving="Time of all of these kernels but the longest of each forward and each backward, or of "
    "the CPU's way to them if it is behind: one kernel moves about as much as the longest. "
    "Of a convolution, all but the products, which it is taken to need as well: the patches "
    "(`im2col`), the sums of their gradients (`col2im`), and copies of both.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
