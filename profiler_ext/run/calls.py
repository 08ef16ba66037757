"""The calls that may end steps: what was called, with how many tokens, which of them repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from profiler_ext.capture.traces.module_paths import user_class, without_wrappers
from profiler_ext.records.recording import StepCall
from profiler_ext.records.step_kinds import is_prompt, is_verification
from profiler_ext.torch_compat import process


@dataclass(frozen=True, slots=True)
class Call:
    """A call that begins or has ended."""

    ender: object  # identifies what was called
    of: str  # what was called, for a person
    source: str  # of steps, in a recording
    weight: int = 1  # how much a call says, against one of something else
    tokens: StepCall | None = None  # where it was given tokens
    model: int | None = None  # identifies the module that ran, or that a function was given


OnCall = Callable[[Call], None]
Given = tuple[tuple[Any, ...], Mapping[str, Any]]
"""The arguments of a call, by position and by name."""
NOTHING: Given = ((), {})
_COMPILED_WEIGHT = 8
"""A compiled function is the step unless something else is called far more often."""
_LIMIT = 2
"""So many times as often as the step something else has to be called to become it."""
_MIN_ROUNDS = 2
"""Verified drafts in a row from which on a round of both models is the step."""
_TOKENS = ("input_ids", "decoder_input_ids", "inputs_embeds", "tokens", "idx", "x")
_EMBEDDINGS = "inputs_embeds"
_MASKS = ("attention_mask", "decoder_attention_mask")


class RepeatedCall:
    """Of all outermost calls, the one that ends steps.

    Of an encoder and a decoder, or a prompt and the tokens after it, the last is the step: it is
    called again and again. A loss beside its model is called as often, and is not. Of a draft model
    and the one that verifies its tokens, the latter is: it ends a round of both.
    """

    def __init__(self, least: int) -> None:
        self.call: Call | None = None
        self._least = least  # calls of it
        self._counts: Counter[object] = Counter()
        self._drafted: list[Call] = []  # since the last call that verified
        self._rounds = 0
        self.has_rounds = False

    def is_next(self, call: Call) -> bool:
        """Count a call; tell whether it should end steps, and does not yet."""
        self._counts[call.ender] += 1
        if self._ends_round(call):
            self.has_rounds = True
            return self.call is None or self.call.ender != call.ender
        if self.has_rounds:
            return False
        if self.call is None:
            return self._counts[call.ender] >= self._least
        return self._score(call) > _LIMIT * self._score(self.call)

    def would_be_first(self, call: Call) -> bool:
        """Tell whether a call that begins is the first that is repeated."""
        return self.call is None and self._counts[call.ender] + 1 >= self._least

    def _score(self, call: Call) -> int:
        return call.weight * self._counts[call.ender]

    def _ends_round(self, call: Call) -> bool:
        """Tell whether a call verifies what others drafted, as some before it did."""
        tokens = call.tokens
        if tokens is None:
            return False
        drafts = self._drafted
        is_of_two = None not in (call.model, *(each.model for each in drafts))
        is_of_two &= all(each.model != call.model for each in drafts)
        if is_of_two and is_verification(tokens.length, len(drafts)):
            self._rounds += 1
            self._drafted = []
            return self._rounds >= _MIN_ROUNDS
        if is_prompt(tokens.length, 0):  # of either model
            self._rounds, self._drafted = 0, []
        else:
            self._drafted.append(call)
        return False


def called_text(kind: str, name: str, codes: Iterable[CodeType]) -> str:
    """Return what is called, for a person: ``the compiled function `decode` (gen.py:41)``."""
    code = next(reversed([*codes]), None)  # below all decorators
    place = "" if code is None else f" ({Path(code.co_filename).name}:{code.co_firstlineno})"
    return f"the {kind} `{name}`{place}"


def module_call(module: Any, given: Given = NOTHING, kind: str = "module", weight: int = 1) -> Call:
    """Return the call of a module."""
    inner = without_wrappers(module)
    of = called_text(kind, user_class(inner), process.methods_of(inner, "forward"))
    return Call((kind, id(inner)), of, "forward", weight, _tokens(of, given), id(inner))


def compiled_call(edge: FrameType) -> Call:
    """Return the call of what ``torch.compile`` made, from the frame that calls it."""
    function, given = process.compiled_callable(edge), process.call_arguments(edge)
    if process.is_module(function):
        return module_call(function, given, "compiled module", _COMPILED_WEIGHT)
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return Call("compiled", "what torch.compile made", "forward", _COMPILED_WEIGHT)
    of = called_text("compiled function", code.co_qualname, [code])
    model = next((id(each) for each in given[0] if process.is_module(each)), None)
    return Call(id(code), of, "forward", _COMPILED_WEIGHT, _tokens(of, given), model)


def _tokens(of: str, given: Given) -> StepCall | None:
    """Return how many tokens a call was given, by the shapes of its arguments."""
    positional, named = given
    first = next((each for each in positional if not process.is_module(each)), None)
    if isinstance(first, Mapping):  # a batch as a tokenizer returns it
        named, first = {**first, **named}, None
    name = next((each for each in _TOKENS if named.get(each) is not None), "")
    given_tokens = first if first is not None else named.get(name)
    sizes = process.sizes_of(given_tokens)
    if sizes is None or len(sizes) != 2 + (first is None and name == _EMBEDDINGS):
        return None
    if len(sizes) == 2 and not process.is_of_numbers(given_tokens):
        return None
    masks = (process.sizes_of(named.get(each)) for each in _MASKS)
    mask = next((each for each in masks if each is not None and len(each) == 2), None)
    return StepCall(of, sizes[0], sizes[1], None if mask is None else max(mask[1], sizes[1]))
