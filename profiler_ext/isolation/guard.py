"""The guard between torch and this package: whatever torch calls of it runs in here.

A wrapped function is called exactly once, with its arguments, and its result and errors reach the
caller unchanged. An observation is a generator that runs before the call up to its ``yield``, and
after it from there. Its failures are caught, kept as a
:class:`~profiler_ext.isolation.failures.Failure`, and warned of once; KeyboardInterrupt, SystemExit
and exceptions of the program's signal handlers pass. The wrappers and the methods that catch are
all that protects torch from a failure, so they do nothing else.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from profiler_ext.errors import CaptureWarning
from profiler_ext.isolation.failures import (
    Failure,
    failure_detail,
    is_raised_by_program,
    reference_to,
)
from profiler_ext.isolation.hook_protocols import Observed as Observed
from profiler_ext.isolation.hook_protocols import PatchState, Ranges, Results, Sorting, binder_of

_MAX_FAILURES = 16
"""After so many capture is of no use, and likely to fail again."""

T = TypeVar("T")


Observation = Generator[None, None, None]
Observe = Callable[[Observed], Observation]
_EXHAUSTED = object()


class Guard:
    """Runs this package's code for torch, and keeps its failures."""

    def __init__(
        self, strict: bool = False, scope: Callable[[], str | None] = lambda: None
    ) -> None:
        self.strict = strict  # raise failures
        self.is_disabled = False  # capture is off after too many failures
        self._scope = scope
        self._failures: list[Failure] = []
        self._unrecorded = 0

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures so far; those that could not be noted may be of any compile."""
        unrecorded = Failure("?", f"{self._unrecorded} failures could not be noted", None)
        return (*self._failures, *((unrecorded,) if self._unrecorded else ()))

    def failures_in(self, scope: str | None) -> tuple[Failure, ...]:
        """Return the failures in a compile."""
        return tuple(failure for failure in self._failures if failure.scope == scope)

    def has_failed(self, scope: str | None) -> bool:
        """Tell whether a hook failed in a compile, and not only a mechanism."""
        return any(failure.lost is None for failure in self.failures_in(scope))

    def run(self, hook: str, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T | None:
        """Run code of this package."""
        return self.run_on((), hook, function, *args, **kwargs)

    def run_on(
        self,
        subject: tuple[Any, ...],
        hook: str,
        function: Callable[..., T],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> T | None:
        """Run code of this package for an object, if any; see :meth:`run`."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            self.caught(hook, error, subject)
            return None

    def try_run(self, lost: str, function: Callable[..., T], /, *args: Any) -> T | None:
        """Run a mechanism whose failure loses only its own result; as ``TryRun``."""
        try:
            return function(*args)
        except Exception as error:
            self.caught(function.__name__, error, (), lost)
            return None

    def caught(
        self, hook: str, error: Exception, subject: tuple[Any, ...], lost: str | None = None
    ) -> None:
        """Keep a failure, in its handler, where ``strict`` raises it again."""
        if self.strict or is_raised_by_program(error):
            raise error
        try:
            self.note(hook, error, next(iter(subject), None), lost)
        except Exception:  # no stack or memory is left
            self._unrecorded += 1

    def wrap(
        self, original: Callable[..., T], hook: str, observe: Observe, switch: PatchState
    ) -> Callable[..., T]:
        """Return a function that does what ``original`` does, and is observed."""
        bind = binder_of(original)

        @functools.wraps(original, updated=())
        def guarded(*args: Any, **kwargs: Any) -> T:
            watch = None
            try:
                if switch.is_on and (switch.is_persistent or not self.is_disabled):
                    call = Observed(bind, args, kwargs)
                    observation = observe(call)
                    watch = observation if next(observation, _EXHAUSTED) is None else None
            except Exception as error:
                self.caught(hook, error, args[:1])
            if watch is None:
                return original(*args, **kwargs)
            try:
                call.result = result = original(*args, **kwargs)
            except BaseException as error:
                call.error = error
                self.run_on(args[:1], hook, watch.close)
                raise
            self.run_on(args[:1], hook, _end, watch)
            return result

        return guarded

    def callback(self, hook: str, function: Callable[..., object]) -> Callable[..., None]:
        """Return ``function`` as a callback for torch, without its result."""

        def guarded(*args: Any, **kwargs: Any) -> None:
            self.run(hook, function, *args, **kwargs)

        return guarded

    def wrap_results(
        self, original: Callable[..., T], hook: str, results: Results, switch: PatchState
    ) -> Callable[..., T]:
        """Return a function that does what ``original`` does, with its results observed."""
        on_result = results.on_result

        @functools.wraps(original, updated=())
        def guarded(*args: Any, **kwargs: Any) -> T:
            result = original(*args, **kwargs)
            if switch.is_on and (switch.is_persistent or not self.is_disabled):
                try:
                    on_result(result)
                except Exception as error:
                    self.caught(hook, error, args[:1])
            return result

        return guarded

    def wrap_ranges(
        self, original: Callable[..., T], hook: str, ranges: Ranges, switch: PatchState
    ) -> Callable[..., T]:
        """Return a method that does what ``original`` does, with a range around it."""
        opened = ranges.opened

        @functools.wraps(original, updated=())
        def guarded(*args: Any, **kwargs: Any) -> T:
            ends = None
            try:
                if switch.is_on and (switch.is_persistent or not self.is_disabled):
                    ends = opened(*args)
            except Exception as error:
                self.caught(hook, error, args[:1])
            try:
                return original(*args, **kwargs)
            finally:
                try:
                    if ends is not None:
                        ends(None, None, None)
                except Exception as error:
                    self.caught(hook, error, args[:1])

        return guarded

    def wrap_candidates(
        self, original: Callable[..., Iterable[T]], hook: str, sorting: Sorting, switch: PatchState
    ) -> Callable[..., Iterable[T]]:
        """Return a function that yields the candidates of ``original`` in another order."""
        run = functools.partial(self.run, hook)

        @functools.wraps(original)
        def guarded(*args: Any, **kwargs: Any) -> Iterable[T]:
            candidates = original(*args, **kwargs)
            is_on = switch.is_on and not self.is_disabled
            return sorting.in_order(candidates, run) if is_on else candidates

        return guarded

    def note(
        self, hook: str, error: BaseException, subject: Any = None, lost: str | None = None
    ) -> None:
        """Keep a failure for the current compile, and warn of the first.

        Repeated failures in a compile count once; of a hook, once capture is disabled.
        """
        detail, about = failure_detail(error), reference_to(subject)
        failure = Failure(hook, detail, self._scope(), about, lost)
        if any(each.is_repeated_by(failure, self.is_disabled) for each in self._failures):
            return
        self._failures.append(failure)
        self.is_disabled = sum(each.lost is None for each in self._failures) >= _MAX_FAILURES
        if len(self._failures) == 1:
            with suppress(Exception):  # where warnings are errors
                text = f"a capture hook failed ({failure.hook}: {failure.detail})"
                warnings.warn(text, CaptureWarning, stacklevel=3)


def _end(observation: Observation) -> None:
    """Resume an observation after its call."""
    if next(observation, _EXHAUSTED) is None:
        raise RuntimeError("an observation yields once")
