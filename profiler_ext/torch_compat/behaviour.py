"""What torch does in some of the supported versions only: a flag for each, named for it.

Code asks the flag (``if behaviour.TAGS_BACKWARD_NODES:``), never the version. A release does what
its number says. A pre-release (``2.13.0a0+nv26.05``, ``2.13.0.dev20260501``, ``2.13.0rc2``) was cut
some time after the release before it, so what changed with its own number is open. Each behaviour
came with a private name of torch's, its sign: it decides what the number leaves open. Where they
differ (a backport, a fork) the sign counts, and a gap says so (``torch_behaviour``). Behaviours
without a sign are in ``VERSION_FLAGS``, those that the data shows in ``PROBED_FLAGS``.
``docs/torch.md`` is made from this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from profiler_ext.torch_compat.shapes import ShapeOf, live_shape

Version = tuple[int, int]
"""The first two numbers of a version."""


class Build(NamedTuple):
    """A torch version."""

    version: Version | None  # that it is or leads to; ``None`` if unknown
    is_release: bool = True


_NUMBER = re.compile(r"(?P<major>\d+)\.(?P<minor>\d+)(?:\.\d+)*(?:\.post\d+)?")


def build_of(version: str) -> Build:
    """Parse a version: ``2.13.0+cpu`` is a release, ``2.13.0a0+gitabc`` a pre-release."""
    match = _NUMBER.match(version)
    if match is None:
        return Build(None, is_release=False)
    rest = version[match.end() :]
    return Build((int(match["major"]), int(match["minor"])), not rest or rest.startswith("+"))


@dataclass(frozen=True, eq=False, kw_only=True)
class Difference:
    """What torch does in some versions."""

    name: str
    does: str  # after "torch"
    otherwise: str  # in the other versions
    source: str  # where in torch, and the change that brought it
    since: Version | None = None  # the first version; ``None`` for the oldest supported
    until: Version | None = None  # the first version without it

    def is_in(self, build: Build) -> bool | None:
        """Tell whether a build does it; ``None`` if its number leaves that open."""
        at = build.version
        if at is None or (not build.is_release and at in (self.since, self.until)):
            return None
        return (self.since or at) <= at and (self.until is None or at < self.until)


@dataclass(frozen=True, eq=False, kw_only=True)
class Behaviour(Difference):
    """What torch does in some versions; true if the torch of this process does it."""

    sign: tuple[str, str]  # the private name that came with it: module and path (see ``shapes``)

    def __bool__(self) -> bool:
        if self not in _SHOWN:
            _SHOWN[self] = self.shows()
        return _SHOWN[self]

    def shows(self, shape_of: ShapeOf = live_shape) -> bool:
        """Tell whether a torch has the sign."""
        try:
            shape_of(*self.sign)
        except LookupError:
            return False
        return True

    def contradiction(self) -> str | None:
        """Return how the number and the sign of this torch disagree, if they do."""
        expected_by_version, shows = self.is_in(build_of(str(torch.__version__))), bool(self)
        if expected_by_version is None or expected_by_version is shows:
            return None
        sign_state = "is there" if shows else "is not there"
        expected = self.does if expected_by_version else self.otherwise
        return (
            f"torch {torch.__version__}: by its version it {expected}, "
            f"but {'.'.join(self.sign)} {sign_state}"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class VersionFlag(Difference):
    """What torch does in some versions without a sign; false where the number leaves it open."""

    def __bool__(self) -> bool:
        return self.is_in(build_of(str(torch.__version__))) is True


@dataclass(frozen=True, eq=False, kw_only=True)
class ProbedFlag(Difference):
    """What torch does in some versions, and its data shows."""

    read_in: str  # the file of this package that reads it


TAGS_BACKWARD_NODES = Behaviour(
    name="tags_backward_nodes",
    does='marks nodes that it traces inside a `grad_fn` with `meta["autograd_backward"]`; from '
    "2.13 on all nodes of a partitioned backward graph too, recomputed ones included",
    otherwise="has no such tag, or keeps it among the labels that nodes share, in "
    '`meta["custom"]`, as builds on their way to 2.12 did: there it is read where it stands',
    source="`torch/fx/traceback.py`, `_mark_autograd_backward` "
    "([#180251](https://github.com/pytorch/pytorch/pull/180251))",
    since=(2, 12),
    sign=("torch.fx.traceback", "'autograd_backward'"),
)
HANDS_BACKWARD_AS_SPEC = Behaviour(
    name="hands_backward_as_spec",
    does="hands `AOTDispatchAutograd.post_compile` one `AOTDispatchAutogradCompileSpec`, which "
    "holds the backward graph for compiled autograd",
    otherwise="hands it the parts one by one: `aot_config`, `lazy_backward_info`, ...",
    source="`torch/_functorch/_aot_autograd/runtime_wrappers.py` "
    "([#178474](https://github.com/pytorch/pytorch/pull/178474))",
    since=(2, 12),
    sign=("torch._functorch._aot_autograd.runtime_wrappers", "AOTDispatchAutogradCompileSpec"),
)
RESTORES_SCHEDULED_ACTION = Behaviour(
    name="restores_scheduled_action",
    does="sets a profiler's `current_action` in `stop()` to what its schedule said of the step, "
    "which it keeps apart from it",
    otherwise="leaves `current_action` as it is, and keeps no other",
    source="`torch/profiler/profiler.py`, `profile.stop` "
    "([#180698](https://github.com/pytorch/pytorch/pull/180698))",
    since=(2, 13),
    sign=("torch.profiler.profiler", "profile._prev_schedule_action"),
)

ALL = (TAGS_BACKWARD_NODES, HANDS_BACKWARD_AS_SPEC, RESTORES_SCHEDULED_ACTION)

ENDS_ALL_THREADS = VersionFlag(
    name="ends_all_threads",
    does="ends a recording of all threads when no operator of another thread still writes into it",
    otherwise="frees what an operator of another thread may still write, which can end the process",
    source="`torch/csrc/autograd/profiler_kineto.cpp`, `disableProfiler` "
    "([#185741](https://github.com/pytorch/pytorch/pull/185741), "
    "[#188172](https://github.com/pytorch/pytorch/pull/188172))",
    since=(2, 14),
)

VERSION_FLAGS = (ENDS_ALL_THREADS,)

PROBED_FLAGS = (
    ProbedFlag(
        name="points_at_operators",
        does="writes a line of carets under the code of a node's `stack_trace`; in 2.13 all "
        "carets of an operator's expression end at its line's end",
        otherwise="writes no carets: the ops of one line have one text",
        source="`torch/_dynamo/symbolic_convert.py`, `frame_summary`",
        since=(2, 13),
        read_in="capture/traces/stack_traces.py",
    ),
    ProbedFlag(
        name="switches_between_branches",
        does="makes a `Switch` of `torch.cond`",
        otherwise="makes a `Conditional` of it; both hold each branch as a `Subgraph`",
        source="`torch/_inductor/ir.py`",
        since=(2, 14),
        read_in="torch_compat/inductor.py",
    ),
    ProbedFlag(
        name="numbers_collectives",
        does="gives a collective's event its number in its process group (`Seq`)",
        otherwise="gives it none: its place among those of the group in the step stands for it",
        source="`torch/csrc/profiler/util.h`, `kSeqNum`",
        since=(2, 13),
        read_in="kineto/distributed.py",
    ),
)


TESTED_VERSIONS: tuple[Version, ...] = ((2, 11), (2, 13), (2, 14), (2, 15))
"""The versions that the tests run on; on 2.12 a rewrite of softmax gives wrong lines."""


def untested_version() -> str | None:
    """Return a warning if this torch's version is untested."""
    if build_of(torch.__version__).version in TESTED_VERSIONS:
        return None
    tested = ", ".join(f"{major}.{minor}" for major, minor in TESTED_VERSIONS)
    return (
        f"torch {torch.__version__} was not tried with this profiler-ext, {tested} were: "
        "a line or a module may be wrong"
    )


def contradictions() -> Iterator[str]:
    """Return where this torch's number and signs disagree."""
    sentences = (each.contradiction() for each in ALL)
    return (each for each in sentences if each is not None)


_SHOWN: dict[Behaviour, bool] = {}


def forget() -> None:
    """Forget which signs were found."""
    _SHOWN.clear()
