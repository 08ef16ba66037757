"""Which of the program's variables, attributes and containers hold tensors, by a bounded walk."""

from __future__ import annotations

import gc
import inspect
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
    NoneType,
)
from typing import Any, NamedTuple

import torch

from profiler_ext.capture.held_modules import HeldModules
from profiler_ext.records.memory import UNSEEN_HOLDER
from profiler_ext.torch_compat import calling, device_memory

_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
"""Torch, whose frames repeat what the program passed, and this package."""

_PACKAGES = frozenset({"torch", "builtins", "numpy", __name__.partition(".")[0]})
"""Whose objects are not gone into."""
_ENTERED = ("torch.distributed.pipelining.",)
"""Torch's own that hold what is between two calls of the program: activations of a stage."""
_RUNNERS = frozenset(
    {"_pytest", "pluggy", "xdist", "execnet", "__channelexec__", "unittest", "runpy"}
)
"""Whose frames are none of the program's; xdist's workers run their part under execnet's name."""
_LEAVES: frozenset[type] = frozenset(
    {int, float, complex, bool, str, bytes, bytearray, range, type, NoneType, ModuleType}
    | {FunctionType, MethodType, BuiltinFunctionType, torch.dtype, torch.device, torch.Size}
)
"""What holds no tensor, by its type: such items cost little to leave out."""
_MAX_VISITED = 2_000
"""Containers and objects that one walk goes into."""
_MAX_SEEN = 20_000
"""Items of these that it looks at."""
_MAX_ITEMS = 1_000
_MAX_DEPTH = 5
_MAX_SEARCHED = 100
_MAX_LEVELS = 5  # a dictionary of an object, and the object, are two
_MAX_KEY = 30
_HAS_VARIABLES = sys.version_info >= (3, 12)
"""Before, to read the variables of a frame prolongs the lives of what they hold."""
_OF_MODULES = ("_parameters", "_buffers", "_modules")  # public by ``named_parameters`` and so on


class Holder(NamedTuple):
    """A name that holds a tensor, and the frame whose variable it begins with."""

    name: str
    tensor: torch.Tensor
    file: str = ""
    line: int = 0
    function: str = ""


def variables() -> Iterator[Holder]:
    """Yield what the variables of the calling thread's frames hold, the innermost first."""
    walk = _Walk()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code, module = frame.f_code, str(frame.f_globals.get("__name__"))
        is_left_out = module.partition(".")[0] in _RUNNERS
        if not is_left_out and not code.co_filename.startswith(_LIBRARIES):
            place = (code.co_filename, frame.f_lineno, code.co_qualname)
            for name, value in _variables_of(frame):
                for full, tensor in walk.tensors(name, value):
                    yield Holder(full, tensor, *place)
                    if (gradient := device_memory.own_gradient(tensor)) is not None:
                        yield Holder(f"{full}.grad", gradient, *place)
        frame = frame.f_back


def _variables_of(frame: FrameType) -> Iterator[tuple[str, Any]]:
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED:
        if frame.f_globals.get("__name__") == "__main__":
            yield from list(frame.f_globals.items())
    elif _HAS_VARIABLES:
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            yield name, calling.value_of(frame, name)


def outputs(tensors: Iterable[object]) -> Iterator[Holder]:
    """Yield the tensors at which a backward begins: they live until it has begun."""
    for at, each in enumerate(tensors):
        if device_memory.is_tensor(each):
            yield Holder(f"outputs[{at}]", each, "torch.autograd", 0, "the backward")  # type: ignore[arg-type]


def attributes() -> Iterator[Holder]:
    """Yield what attributes of modules hold, apart from parameters and buffers."""
    held, walk = HeldModules(), _Walk()
    for module in held.modules():
        own = {name: each for name, each in vars(module).items() if name not in _OF_MODULES}
        found = [pair for name, each in own.items() for pair in walk.tensors(name, each)]
        if found:
            path = held.frames_of([module])[0]
            prefix = type(module).__qualname__ if path is None or not path.path else path.path
            yield from (Holder(f"{prefix}.{name}", tensor) for name, tensor in found)


class _Walk:
    """Goes through containers and objects, each once, as far as its bounds allow."""

    def __init__(self) -> None:
        self._visited: set[int] = set()
        self._seen = 0

    def tensors(self, name: str, value: object) -> Iterator[tuple[str, torch.Tensor]]:
        todo = deque([(name, value, 0)])
        while todo and len(self._visited) < _MAX_VISITED and self._seen < _MAX_SEEN:
            name, value, depth = todo.popleft()
            if device_memory.is_tensor(value):
                yield name, value  # type: ignore[misc]
            elif type(value) not in _LEAVES and id(value) not in self._visited:
                seen, inner = _inside(value) if depth < _MAX_DEPTH else (0, [])
                if seen:
                    self._visited.add(id(value))
                    self._seen += seen
                    todo += [(name + suffix, each, depth + 1) for suffix, each in inner]


def _inside(value: object) -> tuple[int, list[tuple[str, object]]]:
    """Return what a container or an object of the program holds, each with how it is reached.

    And at how many things it had to look: those that hold no tensor are left out.
    """
    if isinstance(value, list | tuple | deque):
        some = [*islice(value, _MAX_ITEMS)]
        return len(some), [
            (f"[{at}]", each) for at, each in enumerate(some) if type(each) not in _LEAVES
        ]
    if isinstance(value, dict):
        items = [*islice(dict.items(value), _MAX_ITEMS)]
        return len(items), [
            (f"[{_key(key)}]", each) for key, each in items if type(each) not in _LEAVES
        ]
    if isinstance(value, type | ModuleType | torch.nn.Module):
        return 0, []
    module = type(value).__module__
    is_left_out = module.partition(".")[0] in _PACKAGES and not module.startswith(_ENTERED)
    own = {} if is_left_out else getattr(value, "__dict__", None)
    items = [*islice(list(own.items()), _MAX_ITEMS)] if isinstance(own, Mapping) else []
    return len(items), [(f".{key}", each) for key, each in items if type(each) not in _LEAVES]


def _key(key: object) -> str:
    text = repr(key) if isinstance(key, str | int) else type(key).__name__
    return text if len(text) <= _MAX_KEY else f"{text[:_MAX_KEY]}…"


@dataclass(frozen=True, slots=True)
class _Open:
    """Something on the way to a tensor, and how the tensor is reached from it."""

    thing: object
    reached: tuple[tuple[int, str], ...]


class Referrers:
    """What refers to a few tensors, by Python's collector, one level at a time: some 0.1 seconds.

    It keeps a tensor by its id, and holds none but for the time of a level.
    """

    def __init__(self, tensors: Iterable[int]) -> None:
        wanted = {*islice(tensors, _MAX_SEARCHED)}
        self._tensors = {id(each): each for each in device_memory.alive()[0] if id(each) in wanted}
        self._open = {at: _Open(each, ((at, ""),)) for at, each in self._tensors.items()}

    def found(self) -> list[Holder]:
        """Return the names that hold each; else the type of what does."""
        made: list[Holder] = []
        for _ in range(_MAX_LEVELS):
            made += self._level() if self._open else ()
        for each in self._open.values():
            kind = type(each.thing).__name__
            made += [
                Holder(f"a {kind}{rest}", self._tensors[at]) for at, rest in each.reached if rest
            ]
        known = {id(each.tensor) for each in made}
        left = (each for at, each in self._tensors.items() if at not in known)
        return [*made, *(Holder(UNSEEN_HOLDER, each) for each in left)]

    def _level(self) -> list[Holder]:
        """Return those that have a name on this level, and keep the others open."""
        level, following, made = self._open, dict[int, _Open](), list[Holder]()
        things = [each.thing for each in level.values()]
        own = {id(things), id(self._tensors), *map(id, level.values())}
        for referrer in gc.get_referrers(*things):
            if id(referrer) in own or isinstance(referrer, FrameType | GeneratorType):
                continue
            for root, suffix, thing in _links(referrer, level):
                reached = tuple((at, suffix + rest) for at, rest in level[thing].reached)
                if root:
                    made += [
                        Holder(_full_name(referrer, root, rest), self._tensors[at])
                        for at, rest in reached
                    ]
                else:
                    known = following.get(id(referrer), _Open(referrer, ()))
                    following[id(referrer)] = _Open(referrer, known.reached + reached)
        named = {id(each.tensor) for each in made}
        self._open = {
            at: _Open(each.thing, left)
            for at, each in following.items()
            if (left := tuple(pair for pair in each.reached if pair[0] not in named))
        }
        return made


def _full_name(referrer: object, root: str, rest: str) -> str:
    """Return the name of what a root holds; of a function ``rest`` begins with a cell's index."""
    if isinstance(referrer, FunctionType):
        at, _, inner = rest.removeprefix("[").partition("]")
        return f"{referrer.__code__.co_freevars[int(at)]}{inner} of {root}"
    if rest.startswith("['") and not isinstance(referrer, dict):  # by an object's ``__dict__``
        attribute, _, inner = rest.removeprefix("['").partition("']")
        return f"{root}.{attribute}{inner}"
    return root + rest


def _links(referrer: Any, level: Mapping[int, _Open]) -> Iterator[tuple[str, str, int]]:
    """Yield the root's name, if a referrer is one, and how it holds which of a level."""
    root, (_, pairs) = "", _inside(referrer)
    if isinstance(referrer, dict):
        module = sys.modules.get(str(referrer.get("__name__")))
        if module is not None and vars(module) is referrer:
            root = module.__name__
            pairs = [(f".{key}", each) for key, each in dict.items(referrer)]
    elif isinstance(referrer, CellType):
        pairs = [("", referrer.cell_contents)]
    elif isinstance(referrer, FunctionType):
        root, pairs = referrer.__qualname__, [("", referrer.__closure__)]
    elif not isinstance(referrer, list | tuple | deque):
        root = type(referrer).__qualname__
        own = getattr(referrer, "__dict__", {})
        pairs = [("", own), *((f".{key}", each) for key, each in own.items())]
    for suffix, each in pairs:
        if id(each) in level:
            yield root, suffix, id(each)
