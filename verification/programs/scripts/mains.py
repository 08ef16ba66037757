"""What a script sees of itself, compared with what Python gives it."""

import dataclasses
import inspect
import pickle
import sys
import typing


@dataclasses.dataclass
class Kept:
    """Pickled by its name in ``__main__``."""

    value: "int | None" = 1


FIRST = (list(globals()), type(__builtins__).__name__)


def main():
    from training import digest, train

    import __main__

    own = sys.modules["__main__"]
    print(
        __name__,
        __file__,
        __package__,
        __spec__ and __spec__.name,
        type(__loader__).__name__,
        __doc__,
    )
    print(FIRST, own.__dict__ is globals(), __main__ is own, type(own).__name__, repr(own)[:40])
    print(sys.argv, sys.path[:2], "profiler_ext" in sys.modules["__main__"].__file__)
    print(inspect.getsource(Kept), typing.get_type_hints(Kept))
    train(4)
    print(pickle.loads(pickle.dumps(Kept(3))), digest())
    print(inspect.getmodule(Kept) is own, getattr(__main__, "__cached__", "none"))


if __name__ == "__main__":
    main()
