"""The exceptions and warnings; each has a slug that names it for machines.

A message says what was found, what was expected, and what to do.
"""

from __future__ import annotations

from profiler_ext.printable import printable_lines


class ProfilerExtError(Exception):
    """Base of every error that this package raises on purpose."""

    slug = "error"

    def __str__(self) -> str:
        """Return the message; names in it, which files may hold, steer no terminal."""
        return printable_lines(super().__str__())


class TraceError(ProfilerExtError):
    """A trace file cannot be read as a Kineto trace."""

    slug = "bad_trace"


class StoreError(ProfilerExtError):
    """Stored provenance cannot be read."""

    slug = "bad_store"


class NewerRecordError(StoreError):
    """Stored provenance is whole, but of a newer version of this package."""


class TorchCapabilityError(ProfilerExtError):
    """This torch lacks something that capture stands on."""

    slug = "torch_capability"


class PrivateNameError(TorchCapabilityError):
    """A private name of torch's that is read is not there; what is lost is named."""

    slug = "private_name"


class MissingExtraError(ProfilerExtError):
    """An optional package is needed; the message names the pip command."""

    slug = "missing_extra"


class OutputError(ProfilerExtError):
    """A file or folder cannot be written."""

    slug = "output"


class StdoutClosedError(OutputError):
    """Nobody reads standard output any more, so there is nobody to tell."""

    slug = "reader_gone"


class InternalError(ProfilerExtError):
    """Something of this package failed; the program and what was recorded are not affected."""

    slug = "own_fault"


class CoverageError(ProfilerExtError):
    """Coverage is below what was asserted."""

    slug = "coverage"


class UsageError(ProfilerExtError):
    """The call or the command line asks for something that cannot be done."""

    slug = "usage"


class UnclearNameError(UsageError):
    """A name means several things of a session, or none.

    Attributes:
        candidates: the names that it could mean, or those that are like it.
        is_ambiguous: it means several.
    """

    slug = "unclear_name"

    def __init__(self, message: str, *, candidates: tuple[str, ...], is_ambiguous: bool) -> None:
        """Say what it could mean."""
        super().__init__(message)
        self.candidates = candidates
        self.is_ambiguous = is_ambiguous


class ProfilerExtWarning(UserWarning):
    """Base of every warning of this package."""

    def __str__(self) -> str:
        """Return the message; names in it steer no terminal."""
        return printable_lines(super().__str__())


class CaptureWarning(ProfilerExtWarning):
    """A capture hook failed; the compile went on, and a gap says what is missing."""


class LateCaptureWarning(ProfilerExtWarning):
    """A model was compiled before capture was switched on."""


class UntestedTorchWarning(ProfilerExtWarning):
    """This torch is none that was tried; what is captured may be wrong."""


class LinesUnavailableError(ProfilerExtError):
    """The lines that run cannot be watched.

    Attributes:
        is_old: because this Python is too old.
    """

    slug = "lines_unavailable"

    def __init__(self, message: str, *, is_old: bool = False) -> None:
        """Say why."""
        super().__init__(message)
        self.is_old = is_old
