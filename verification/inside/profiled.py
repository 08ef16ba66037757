"""``profile(inside=profiler_ext.Inside(...))`` in a program, and whether its tables have it.

Each way to use it is a function of the training step, run in a process whose caches are empty.
"""

from __future__ import annotations

import inspect
import warnings
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import profiler_ext
from profiler_ext.errors import CaptureWarning
from profiler_ext.records.evidence import ShareEvidence
from verification.inside.running import Row

__all__ = ["WAYS", "by_profile"]

STEPS = 4
Step = Callable[[], object]


class Block(nn.Module):
    """A norm, and what is fused with it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.gain = nn.LayerNorm(width), nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.norm(x))
        return x + torch.tanh(y) * self.gain  # looked into


def made(device: str, rows: int, width: int) -> Step:
    """A training step, compiled at its first call."""
    model = nn.Sequential(Block(width), Block(width)).to(device)
    run, x = torch.compile(model), torch.randn(rows, width, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        run(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def looked_into() -> str:
    """The marked line, as a name."""
    lines, first = inspect.getsourcelines(Block.forward)
    at = next(at for at, line in enumerate(lines) if line.rstrip().endswith("# looked into"))
    return f"{inspect.getsourcefile(Block)}:{first + at}"


def _in_block(step: Step, name: str = "", **options: Any) -> Any:
    """Compile in the block."""
    inside = profiler_ext.Inside(name, kernels=6)
    with profiler_ext.profile(inside=inside, **options) as prof:
        for _ in range(STEPS):
            step()
            prof.step()
    return prof


def longest(step: Step) -> Any:
    return _in_block(step)


def line(step: Step) -> Any:
    return _in_block(step, looked_into())


def module(step: Step) -> Any:
    return _in_block(step, "module:1")


def kernel(step: Step) -> Any:
    """Look first without a name, to know one."""
    measured = _in_block(step).session.recording.measured
    torch.compiler.reset()
    return _in_block(step, measured[0].kernel)


def scheduled(step: Step) -> Any:
    """Compile in steps that are not recorded."""
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    return _in_block(step, schedule=schedule)


def open_schedule(step: Step) -> Any:
    """The block ends in a cycle in which nothing ran."""
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=STEPS - 2)
    return _in_block(step, schedule=schedule)


def compiled_between(step: Step) -> Any:
    """Compile between the making of the profile and its block."""
    prof = profiler_ext.profile(inside=profiler_ext.Inside(kernels=6))
    step()
    with prof:
        for _ in range(STEPS):
            step()
            prof.step()
    return prof


def after_another(step: Step) -> Any:
    """Inductor is imported, and has compiled something, before the profile is made."""
    profiler_ext.enable()
    torch.compile(lambda x: torch.sin(x) + 1.0)(
        torch.ones(8, device="cuda" if torch.cuda.is_available() else "cpu")
    )
    return _in_block(step)


WAYS: dict[str, Callable[[Step], Any]] = {
    each.__name__: each
    for each in (
        *(longest, line, module, kernel, scheduled, open_schedule, compiled_between),
        after_another,
    )
}


def by_profile(name: str, options: Namespace) -> Row:
    """Return what one way found, and what is not as it should be."""
    size = ("cpu", 8, 16) if options.tiny else ("cuda", 32768, 2048)
    step = made(*size)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prof = WAYS[name](step)
    own = [str(each.message) for each in caught if issubclass(each.category, CaptureWarning)]
    return session_row(prof.session) | {"warnings": own, "device": _device(options.tiny)}


def _device(is_tiny: bool) -> str:
    return "cpu" if is_tiny else torch.cuda.get_device_name()


def session_row(session: profiler_ext.Session) -> Row:
    """What a session has of measured shares."""
    kernels = session.recording.measured
    measured = [each for each in kernels if each.sites]
    launches = session.launches()
    own = launches[launches["share_evidence"] == ShareEvidence.MEASURED.value]
    return {
        "kernels": len(kernels),
        "measured": len(measured),
        "launches": len(own),
        "reasons": [f"{each.kernel}: {each.reason}" for each in kernels if each.reason],
        "wrong": wrong(session),
    }


def wrong(session: profiler_ext.Session) -> list[str]:
    """Return what is not as it should be in the tables of a session that was looked into."""
    found = list[str]()
    measured = [each for each in session.recording.measured if each.sites]
    if not measured:
        return ["no kernel has measured shares"]
    launches, parts = session.launches(), session.attribution()
    is_measured = launches["share_evidence"] == ShareEvidence.MEASURED.value
    for each in measured:
        own = launches[(launches["kernel"] == each.kernel) & is_measured]
        several = any(len(site.nodes) > 1 for site in each.sites)
        if several and own.empty:
            found.append(f"no launch of {each.kernel} has the evidence measured_inside")
        for number in own["launch"].tolist():
            rows = parts[parts["launch"] == number]
            taken = Counter[str]()
            for node, ns in zip(rows["node"].tolist(), rows["duration_ns"].tolist(), strict=True):
                taken[node] += ns
            if not any(_are_shares(taken, dict(zip(s.nodes, s.times_ns, strict=True)))
                       for s in each.sites):  # fmt: skip
                found.append(f"launch {number} of {each.kernel} is shared otherwise than measured")
    return [*found, *_wrong_lines(session)]


def _are_shares(taken_ns: Counter[str], measured_ns: dict[str, int]) -> bool:
    """Tell whether a launch is shared as measured, within rounding."""
    whole, of = sum(taken_ns.values()), sum(measured_ns.values())
    nodes = {*taken_ns, *measured_ns}
    return bool(of) and all(
        abs(taken_ns[node] - whole * measured_ns.get(node, 0) / of) <= 1 for node in nodes
    )


def _wrong_lines(session: profiler_ext.Session) -> list[str]:
    """Compare the table of lines with the parts of launches, and with that of the cost model."""
    lines, parts = session.by_line(), session.attribution()
    steps = session.launches()[["launch", "step"]].dropna()
    inside = parts.merge(steps, on="launch").dropna(subset="line")
    sums = inside.groupby(["file", "line"])["duration_ns"].sum()
    table = lines.dropna(subset="line").set_index(["file", "line"])["duration_ns"]
    modelled = session.with_recording(replace(session.recording, measured=()))
    found = list[str]()
    if not table.sort_index().eq(sums.sort_index()).all():
        found.append("by_line() does not add up to the parts of the launches")
    before = modelled.by_line()
    if lines["duration_ns"].sum() != before["duration_ns"].sum():
        found.append("by_line() has another time in all than by the cost model")
    if lines.equals(before):
        found.append("by_line() is as by the cost model")
    return found
