"""``profiler-ext doctor``: checks torch and the capabilities of this machine."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profiler_ext.cli.common import FAILED, Parser, add_format, print_answer, print_line
from profiler_ext.exporters.extras import EXTRAS

if TYPE_CHECKING:
    from profiler_ext.exporters.json_output.documents import Doctor

HELP = "check whether this environment is ready to profile"

_MAX_LISTED = 3
_SUMMARIZED = ("python", "torch", "device", "eager lines", "FX graph cache")


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    subject: str
    state: str  # ``ok``, ``off`` or ``missing``
    detail: str  # the result, and what to do
    is_fatal: bool = False  # nothing can be captured

    def line(self) -> str:
        """Return it as a line of text."""
        return f"{self.state:8} {self.subject:28} {self.detail}"


def examine() -> tuple[Check, ...]:
    """Look at this machine; imports torch."""
    return tuple(_findings())


def _findings() -> Iterator[Check]:
    yield Check("python", "ok", platform.python_version())
    try:
        import torch
    except ImportError as error:
        yield Check("torch", "missing", f"{error}; pip install torch", is_fatal=True)
        return
    from profiler_ext.torch_compat.behaviour import untested_version

    problem_text = untested_version()
    yield Check(
        "torch", "missing" if problem_text else "ok", problem_text or str(torch.__version__)
    )
    yield _device()
    yield _eager_lines()
    yield from _capabilities()
    yield from _settings()
    yield from _extras()


def _device() -> Check:
    import torch

    if torch.cuda.is_available():
        return Check("device", "ok", torch.cuda.get_device_name())
    if torch.accelerator.is_available():
        name = torch.accelerator.current_accelerator()
        return Check("device", "ok", f"{name}: read as far as its trace allows")
    return Check("device", "ok", "CPU: C++ kernels and ATen ops are the launches")


def _eager_lines() -> Check:
    if sys.version_info >= (3, 12):
        return Check("eager lines", "ok", "eager work is attributed to source lines")
    return Check("eager lines", "off", "eager work is attributed to ATen ops; lines need 3.12+")


def _capabilities() -> Iterator[Check]:
    from profiler_ext.torch_compat import behaviour, names, points

    for point in points.ALL:
        problem = point.problem()
        detail = point.purpose if problem is None else f"{problem}; unavailable: {point.purpose}"
        yield Check(point.path, "ok" if problem is None else "missing", detail, problem is not None)
    unavailable = [name for name in names.ALL if not name.is_available()]
    for name in unavailable:
        detail = f"{name.missing_reason()}; unavailable: {name.purpose}"
        yield Check(name.path, "missing", detail, name.is_vital)
    available = len(names.ALL) - len(unavailable)
    yield Check(
        "private names", "missing" if unavailable else "ok", f"{available} of {len(names.ALL)}"
    )
    for each in behaviour.ALL:
        differs = each.contradiction()
        state = "missing" if differs else "ok" if each else "off"
        detail = f"torch {each.does if each else each.otherwise}"
        yield Check(each.name, state, differs or detail)
    for flag in behaviour.VERSION_FLAGS:
        detail = f"torch {flag.does if flag else flag.otherwise}"
        yield Check(flag.name, "ok" if flag else "off", detail)


def _settings() -> Iterator[Check]:
    from profiler_ext.torch_compat import inductor

    on = inductor.caches_enabled()
    yield Check("FX graph cache", "ok" if on else "off", inductor.cache_dir())
    rides = os.environ.get("PROFILER_EXT_RIDE", "1") != "0"
    text = "stored with the cached artifacts" if rides else "PROFILER_EXT_RIDE=0"
    yield Check("provenance in the cache", "ok" if rides else "off", text)


def _extras() -> Iterator[Check]:
    # 15 ms, that every command would pay: the list of commands imports this file.
    from importlib import metadata

    for extra in EXTRAS:
        for package in extra.packages:
            try:
                yield Check(package, "ok", metadata.version(package))
            except metadata.PackageNotFoundError:
                yield Check(package, "off", f"optional; {extra.install}")


def add_options(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument("--verbose", action="store_true", help="list every check")
    add_format(parser, ["text", "json"])
    parser.show_examples(("is everything there to profile?", "profiler-ext doctor"))
    parser.set_defaults(command=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    findings = examine()
    if options.format == "json":
        print_answer(_answer(findings), options)
    else:
        print_line(_verdict(findings))
        lines = [each.line() for each in findings] if options.verbose else _summary(findings)
        for line in lines:
            print_line(line)
    return FAILED if any(finding.is_fatal for finding in findings) else 0


def _verdict(findings: Sequence[Check]) -> str:
    if fatal := [each for each in findings if each.is_fatal]:
        more = f" (and {len(fatal) - 1} more)" if len(fatal) > 1 else ""
        return f"Not ready: {fatal[0].detail}{more}"
    limited = sum(each.state == "missing" for each in findings)
    if limited:
        return f"Ready, with limits: {limited} of {len(findings)} checks failed"
    if any(each.subject == "eager lines" and each.state == "off" for each in findings):
        return "Ready: compiled work is attributed to lines, eager work to ops (Python below 3.12)"
    return "Ready: compiled and eager work is attributed to source lines"


def _summary(findings: Sequence[Check]) -> Iterator[str]:
    """Yield what matters of the checks, in a dozen lines at most."""
    by_subject = {each.subject: each for each in findings}
    for subject in _SUMMARIZED:
        if subject in by_subject:
            yield f"  {subject:15} {by_subject[subject].detail}"
    failed = [each for each in findings if each.state == "missing" and each.subject != "torch"]
    for each in failed[:_MAX_LISTED]:
        yield f"  missing         {each.subject}: {each.detail}"
    if len(failed) > _MAX_LISTED:
        yield f"  missing         {len(failed) - _MAX_LISTED} more"
    yield from _extras_summary(by_subject)
    yield "`profiler-ext doctor --verbose` lists every check."


def _extras_summary(by_subject: dict[str, Check]) -> Iterator[str]:
    known = [extra for extra in EXTRAS if by_subject.keys() >= {*extra.packages}]
    absent = [e.name for e in known if any(by_subject[name].state != "ok" for name in e.packages)]
    installed = [extra.name for extra in known if extra.name not in absent]
    if installed:
        yield f"  extras          {', '.join(installed)}"
    if absent:
        yield f"  not installed   {', '.join(absent)}"
        yield f"                  pip install 'profiler-ext[{','.join(absent)}]'"


def _answer(findings: Sequence[Check]) -> Doctor:
    from profiler_ext.exporters.json_output.documents import Doctor, DoctorCheck

    checks = [
        DoctorCheck(subject=f.subject, state=f.state, detail=f.detail, is_fatal=f.is_fatal)
        for f in findings
    ]
    return Doctor(checks=checks)
