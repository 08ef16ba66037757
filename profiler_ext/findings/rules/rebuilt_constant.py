"""The rule for tensors that each call computes again from sizes alone."""

from __future__ import annotations

from collections.abc import Iterable

from profiler_ext.findings.constants import WEIGHTS
from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.groups import Kind, LaunchGroup
from profiler_ext.findings.launch_groups import candidates_of
from profiler_ext.findings.rule import Candidate, Rule

_REMEDY = (
    "compute it once and keep it (register_buffer with persistent=False), or before the layers; "
    "again only if its size changes"
)
_ONCE = "compute it once after loading, and keep the result in place of what it is made of"


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    def texts(group: LaunchGroup) -> tuple[str, str]:
        launches = facts.launches_per_step(group.launches)
        times = f"{group.count:,} times" if group.count > 1 else "once"
        what = "weights alone are computed with" if group.what else "the same tensor is computed"
        remedy = _ONCE if group.what == WEIGHTS else _REMEDY
        return f"{what} {times} a step ({launches:,} launches)", remedy

    return candidates_of(facts, Kind.CONSTANTS, texts)


RULE = Rule(
    name="rebuilt_constant",
    title="A constant that each step computes again",
    means="Lines of a function compute a tensor from sizes alone, by their text: positions, "
    "frequencies, a causal mask (`arange`, `eye`, `linspace`, `ones` with `tril`), and what "
    "follows from them. Or a module assigns what a function of sizes returns, or a method of its "
    "own. Or what a function returns of attributes of `self`, in training and several times a "
    "step, or of what one line gives to four layers or more and never assigns "
    "(`x = layer(x, mask)`). Autograd differentiates none of it, and nothing in it is drawn at "
    "random. Or, where nothing is trained, lines of a module compute with learned attributes of "
    "`self` alone, by their names (`self.weight.float() * self.scale`), or with any of them in a "
    "method whose name says that it returns a weight (`weight`, `dequantize`). Or several modules "
    "each make a block mask for `flex_attention`, with torch's `create_block_mask`.",
    because="Each call launches a kernel for each op, although the result is the same in each "
    "layer and each step. `create_block_mask` looks at each pair of a query and a key, and sorts.",
    remedy="A buffer of the module (`register_buffer(..., persistent=False)`), or a cache by size. "
    "One block mask for all layers, by a compiled `create_block_mask` where it changes.",
    saving="How much shorter the step would be in a replay without these launches, after the "
    "groups of launches and work that save more. Of block masks, and of functions of attributes or "
    "of what layers are given, one of all is left: those may change from step to step.",
    judge=_judge,
)
