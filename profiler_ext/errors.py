"""Exceptions and warnings, each with a slug for machines.

A message says what was found, what was expected, and what to do.
"""

from __future__ import annotations

from pathlib import Path

from profiler_ext.printable import printable_lines

_DOCS = Path(__file__).parents[1] / "docs"


class ProfilerExtError(Exception):
    """Base of every error that this package raises on purpose."""

    slug = "error"
    page_name: str | None = None  # of the page that explains it, where that is not the errors' own

    @property
    def page(self) -> str | None:
        """The page of the documentation that explains the error; in a checkout, which has it."""
        page = self.page_name or f"reference/errors.md#{self.slug}"
        return f"docs/{page}" if (_DOCS / page.partition("#")[0]).is_file() else None

    def __str__(self) -> str:
        """Return the message, safe for terminals: files may hold any name."""
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
    """This torch lacks something that capture needs."""

    slug = "torch_capability"
    page_name = "torch.md"


class PrivateNameError(TorchCapabilityError):
    """A private name of torch's does not exist; the message names what is unavailable."""

    slug = "private_name"
    page_name = "hooks.md"


class MissingExtraError(ProfilerExtError):
    """An optional package is needed; the message names the pip command."""

    slug = "missing_extra"
    page_name = "start/install.md"


class OutputError(ProfilerExtError):
    """A file or folder cannot be written."""

    slug = "output"


class StdoutClosedError(OutputError):
    """Standard output was closed by its reader."""

    slug = "stdout_closed"


class InternalError(ProfilerExtError):
    """Something in this package failed; the program and the recording are not affected."""

    slug = "internal_error"


class CoverageError(ProfilerExtError):
    """Coverage is below what was asserted."""

    slug = "coverage"
    page_name = "gaps.md"


class UsageError(ProfilerExtError):
    """The call or the command line cannot be carried out as given."""

    slug = "usage"


class UnclearNameError(UsageError):
    """A name matches several things of a session, or none.

    Attributes:
        candidates: the names that match, or similar ones.
        is_ambiguous: several match.
    """

    slug = "unclear_name"

    def __init__(self, message: str, *, candidates: tuple[str, ...], is_ambiguous: bool) -> None:
        super().__init__(message)
        self.candidates = candidates
        self.is_ambiguous = is_ambiguous


class ProfilerExtWarning(UserWarning):
    """Base of every warning of this package."""

    def __str__(self) -> str:
        """Return the message, safe for terminals."""
        return printable_lines(super().__str__())


class CaptureWarning(ProfilerExtWarning):
    """A capture hook failed; the compile went on, and a gap says what is missing."""


class LateCaptureWarning(ProfilerExtWarning):
    """A model was compiled before capture was enabled."""


class UntestedTorchWarning(ProfilerExtWarning):
    """This version of torch is not tested; what is captured may be wrong."""


class LinesUnavailableError(ProfilerExtError):
    """Running lines cannot be recorded.

    Attributes:
        is_old: because this Python is too old.
    """

    slug = "lines_unavailable"
    page_name = "guides/eager.md"

    def __init__(self, message: str, *, is_old: bool = False) -> None:
        super().__init__(message)
        self.is_old = is_old
