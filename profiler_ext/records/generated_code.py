"""Owns the text of Inductor's generated modules as a session keeps it: packed, once a content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType

lzma: ModuleType | None
try:
    import lzma
except ImportError:  # Python can be built without it
    lzma = None

MAX_MODULE_BYTES = 8_000_000
"""A module whose text is larger is not kept."""
MAX_CODE_BYTES = 64_000_000
"""Nor is what goes beyond this in one session."""
MAX_PACKED_BYTES = 4_000_000
"""Nor what makes the session's file larger than this by it."""
_PRESET, _MAX_MEMORY_BYTES = 3, 64 << 20
_PART_BYTES = 32 << 10  # no text in a file of ours may be long


@dataclass(frozen=True, slots=True)
class GeneratedModule:
    """The text of a module that Inductor generated, once however many graphs it is of.

    Attributes:
        digest: SHA-256 of the text in UTF-8; names the content.
        paths: where it lay, as the graphs name it in ``output_module``.
        size_bytes: of the text in UTF-8.
        packed: the text as xz packs it, in parts that a file may hold.
    """

    digest: str
    paths: tuple[str, ...]
    size_bytes: int
    packed: tuple[bytes, ...]

    @property
    def packed_bytes(self) -> int:
        """How many bytes it takes."""
        return sum(map(len, self.packed))

    @property
    def text(self) -> str:
        """The text.

        Raises:
            ValueError: What is packed is not the text that the digest names.
            ImportError: This Python has no xz.
        """
        if lzma is None:
            raise ImportError("this Python was built without lzma")
        unpacking = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MAX_MEMORY_BYTES)
        try:
            text: bytes = unpacking.decompress(b"".join(self.packed), self.size_bytes + 1)
        except (lzma.LZMAError, EOFError) as error:
            raise ValueError(f"it cannot be unpacked ({error})") from error
        if len(text) != self.size_bytes or hashlib.sha256(text).hexdigest() != self.digest:
            raise ValueError("it is not what its digest names")
        return text.decode()


def generated_module(text: str, paths: Iterable[str]) -> GeneratedModule:
    """Pack the text of a generated module.

    Args:
        text: the text.
        paths: where it lies.

    Returns:
        The module.

    Raises:
        ImportError: This Python has no xz.
    """
    if lzma is None:
        raise ImportError("this Python was built without lzma")
    plain = text.encode("utf-8", "backslashreplace")
    packed = lzma.compress(plain, preset=_PRESET)
    parts = (packed[at : at + _PART_BYTES] for at in range(0, len(packed), _PART_BYTES))
    return GeneratedModule(
        hashlib.sha256(plain).hexdigest(), tuple(paths), len(plain), tuple(parts)
    )


def inconsistency_of_code(modules: Iterable[GeneratedModule]) -> str | None:
    """Return what is wrong with modules that were read from a file, ``None`` if nothing is.

    Args:
        modules: the modules.
    """
    return next(_of_modules(modules), None)


def _of_modules(modules: Iterable[GeneratedModule]) -> Iterator[str]:
    total_bytes = 0
    for at, module in enumerate(modules):
        total_bytes += max(module.size_bytes, 0)
        if not 0 <= module.size_bytes <= MAX_MODULE_BYTES or total_bytes > MAX_CODE_BYTES:
            yield f"generated module {at}: {module.size_bytes} bytes, expected fewer"
            return
        try:
            _ = module.text
        except ImportError:
            return
        except ValueError as error:
            yield f"generated module {at}: {error}"
