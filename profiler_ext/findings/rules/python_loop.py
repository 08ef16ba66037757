"""The rule for Python loops that launch the same kernels many times."""

from __future__ import annotations

from collections.abc import Iterable

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.groups import Kind, LaunchGroup
from profiler_ext.findings.launch_groups import candidates_of
from profiler_ext.findings.recurrences import IN_TURN, in_turn
from profiler_ext.findings.rule import Candidate, Rule

_FOREACH = (
    "torch's _foreach_* ops on the list of tensors (torch.nn.utils.clip_grad_norm_ for gradients, "
    "_foreach_lerp_ for averages of parameters)"
)
_AND_WAITS = " and waits for the device"
_BATCHED = (
    "one op on stacked tensors in place of the loop (torch.bmm over experts or heads, nn.LSTM "
    "for nn.LSTMCell, one nn.Embedding with an offset for each feature); or "
    "torch.compile(mode='reduce-overhead') of the loop"
)
_IN_TURN = (
    "torch.compile(mode='reduce-overhead') of the loop: CUDA graphs launch its rounds at once, "
    "which still run one after the other; or an op that runs all of them (nn.LSTM, nn.GRU)"
)
_AT_ONCE = (
    "one pass for all values that the loop compares with: torch.bucketize or the labels "
    "themselves as an index (torch.bincount, scatter_add, index_select)"
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    def of_tensors(group: LaunchGroup) -> tuple[str, str]:
        if group.what == IN_TURN:
            return of_calls(group)
        launches = facts.launches_per_step(group.launches)
        over = f"a Python loop over {group.count:,} tensors ({launches:,} launches)"
        return over, _FOREACH

    def of_calls(group: LaunchGroup) -> tuple[str, str]:
        launches = facts.launches_per_step(group.launches)
        if group.what == IN_TURN:
            return f"a Python loop whose rounds need each other ({launches:,} launches)", _IN_TURN
        runs = f"a Python loop runs {group.count:,} times a step ({launches:,} launches)"
        is_mask = in_turn(facts).is_mask[facts.main_place[group.launches]]
        remedy = _AT_ONCE if 2 * is_mask.sum() > len(is_mask) else _BATCHED
        return f"{runs}{_AND_WAITS if group.waits is not None else ''}", remedy

    tensors = candidates_of(facts, Kind.TENSORS, of_tensors)
    calls = candidates_of(facts, Kind.CALLS, of_calls)
    if isinstance(tensors, CannotJudge) or isinstance(calls, CannotJudge):
        return tensors
    return (*tensors, *calls)


RULE = Rule(
    name="python_loop",
    title="A Python loop of short launches",
    means="The lines of one function launch the same kernels again and again, and the step waits "
    "for them: for each of 16 or more tensors outside of forward and backward, or at least 8 times "
    "in one forward. A line that calls 8 or more modules of a list at a time is such a loop where "
    "its text shows that none takes the result of another: a comprehension, or results that are "
    "appended and joined, or written at an index that selects the arguments, too. An op that "
    "itself launches the same kernels again and again is none. A loop in a forward is one finding "
    "with the functions that its rounds call, with what needs no gradient in these, and with what "
    "a module runs as often between them: its line is that of the function that calls them all, or "
    "where that line returns, of what calls this function. "
    "In a compiled graph, in which Dynamo has written all rounds of a loop one after the other, "
    "the products of a line tell how many there are; a loop whose rounds take the result of the "
    "round before is none there. The backward of a loop counts, too, with that of lines of views "
    "in it, which launch nothing else, and the whole gradients that autograd copies for each part "
    "that is written. Rounds need each other where, by the text of all lines that ran, one reads "
    "what the round before made of what it read itself: `h = self.cell(x, h)`, `found[-1]`, or a "
    "state that a called module keeps (`self.mem = f(self.mem, x)`). A sum "
    "over the rounds is no such thing, but for what reads it. They are a finding of their own if "
    "nothing in them waits for the device, and the other launches of the loop are another.",
    because="Each op costs the CPU the same, however small its tensor. Loops over parameters "
    "(clipping, averages of weights, logged norms), experts, heads or time steps launch hundreds "
    "of kernels of a few microseconds.",
    remedy="Torch's `_foreach_*` ops take a list of tensors; `clip_grad_norm_` uses them. Stack "
    "what a loop in a forward takes apart, so that one op does it all, or compile the loop. Where "
    "rounds need each other, take out of the loop what does not (a product on the inputs of all "
    "rounds), and launch the rest by CUDA graphs: `torch.compile(mode='reduce-overhead')`.",
    saving="How much shorter the step would be in a replay in which a loop over tensors costs the "
    "CPU a tenth, and one in a forward what one of its rounds costs, waits for the device "
    "included, and what the CPU computes in it (`cpu_work`) not; half of the time of its kernels "
    "below 10 us is left. Of longer ones as much is left "
    "as they have blocks for the device's multiprocessors, at least one round; all where the text "
    "of the lines, or of what calls them, may take the result of the round before. Of the "
    "gradients that each round adds to those of the round before, and of the zeros that it writes "
    "around those of a part of a tensor, one round is left; and of what compares a tensor that no "
    "round changes with a value of the round, by the text, and sums or writes where it is equal. "
    "Where rounds need each other, each "
    "launch but the first of a graph costs the CPU two microseconds, and the device what it did. "
    "Larger savings of other groups of "
    "launches are replayed before it, so that no time is saved twice.",
    judge=_judge,
)
