"""What the values of a tensor are reduced to, on its device: hashes of rows, and slices of zeros.

Nothing here waits for the device: results are small tensors of int64, read together at the end.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple, TypeGuard, cast

import torch

MIN_ELEMENTS = 64  # fewer values are equal by chance
_MIN_ROW_ELEMENTS = 8
_MAX_ROWS = 1 << 24  # to sort
_PART = 1 << 26  # elements at once: a part needs room for a few copies
_FOLDED = 1024  # columns that a long vector is folded to
_ODD, _SHIFT, _SEED = 0x2545F4914F6CDD1D, 29, 0x1E3779B97F4A7C15
_POSITIVE = 0x7FFFFFFF  # as int32, too
_NO_ROW = -1
_FEATURES_LAST = 3  # dimensions at most; of more the second is the channels


class Fingerprint(NamedTuple):
    """The values of one tensor, as they are read from the device."""

    digest: int
    is_constant: bool  # one value throughout
    equal_rows: int  # rows that are equal to one before them, but for rows of one value
    rows: int


def is_plain(thing: object) -> TypeGuard[torch.Tensor]:
    """Tell whether something is a tensor with values that can be read."""
    if type(thing) not in (torch.Tensor, torch.nn.Parameter):
        return False
    tensor = cast("torch.Tensor", thing)
    is_strided = tensor.layout is torch.strided and not tensor.is_quantized
    return is_strided and not tensor.is_meta and tensor.numel() > 0 and _has_memory(tensor)


def _has_memory(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is none of a transform's (``torch.func``), which wraps others."""
    try:
        return tensor.untyped_storage().data_ptr() != 0
    except (RuntimeError, NotImplementedError):
        return False


def rows_of(tensor: torch.Tensor) -> int:
    """Return the number of rows that are compared with each other; 0 for none."""
    last = tensor.shape[-1] if tensor.dim() else 1
    rows = tensor.numel() // last
    is_fit = tensor.is_floating_point() and last >= _MIN_ROW_ELEMENTS and 1 < rows <= _MAX_ROWS
    return rows if is_fit else 0


def fingerprint(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the digest, whether all is one value, and how many rows are equal to earlier ones.

    And the digests of the rows, if these are compared.
    """
    words = _words(tensor)
    is_one_value, digests = _digests(words)
    weights = WEIGHTS.first(len(digests), torch.int64, digests.device)
    mixed = (digests ^ (digests >> _SHIFT)) * weights
    is_constant = is_one_value.all() & (digests == digests[:1]).all()
    equal, rows = torch.zeros_like(mixed[0]), None
    if rows_of(tensor) == len(digests):
        rows = torch.where(is_one_value, _NO_ROW, digests)
        ordered = rows.sort().values
        equal = ((ordered[1:] == ordered[:-1]) & (ordered[1:] != _NO_ROW)).sum()
    return torch.stack([mixed.sum(), is_constant.long(), equal]), rows


def rows_known_before(calls: list[torch.Tensor]) -> torch.Tensor:
    """Return how many rows of each call are equal to one of an earlier call, by their digests."""
    rows = torch.cat(calls)
    number = torch.repeat_interleave(
        torch.arange(len(calls), device=rows.device),
        torch.tensor([len(each) for each in calls], device=rows.device),
    )
    ordered, order = rows.sort(stable=True)
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    firsts = number[order][is_first][is_first.cumsum(0) - 1]
    is_before = (firsts < number[order]) & (ordered != _NO_ROW)
    return torch.zeros(len(calls), dtype=torch.int64, device=rows.device).index_add_(
        0, number[order], is_before.long()
    )


def read_fingerprint(numbers: list[int], rows: int) -> Fingerprint:
    """Return a fingerprint of the numbers that were read of it."""
    digest, is_constant, equal_rows = numbers
    return Fingerprint(digest, bool(is_constant), equal_rows, rows)


def filled_slices(gradient: torch.Tensor) -> torch.Tensor:
    """Return how many rows have a value other than zero, then slices along each dimension.

    Of four dimensions or more a row is all of a position: channels, or heads, are the second.
    """
    is_filled = gradient != 0
    dims = tuple(range(gradient.dim()))
    others = [tuple(each for each in dims if each != dim) for dim in dims]
    along = [is_filled.any(dim=each).sum() if each else is_filled.sum() for each in others]
    rows = is_filled.any(dim=(1, -1) if gradient.dim() > _FEATURES_LAST else -1).sum()
    return torch.stack([rows, *along])


def read_part(filled: list[int], shape: tuple[int, ...], *, with_features: bool) -> float:
    """Return the part of a gradient that is in rows, and in slices, with a value other than zero.

    The features, the last dimension or the second of four or more, count only where asked: a layer
    that drops channels sets them to zero, too.
    """
    rows, *along = filled
    features = 1 if len(shape) > _FEATURES_LAST else len(shape) - 1
    parts = [own / whole for own, whole in zip(along, shape, strict=True)]
    if not with_features and len(parts) > 1:
        parts[features] = 1.0
    whole = prod(shape[:-1]) // (shape[1] if len(shape) > _FEATURES_LAST else 1)
    return min(rows / max(whole, 1), prod(parts))


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits of a tensor as rows of whole numbers."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor).flatten(-2)
    if tensor.is_floating_point() and tensor.itemsize > 1:
        tensor = tensor + 0  # no zeros with a sign
    rows = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() > 1 else tensor.reshape(1, -1)
    if len(rows) == 1 and rows.shape[1] % _FOLDED == 0:
        rows = rows.reshape(-1, _FOLDED)
    rows = rows.contiguous()
    if rows.itemsize == torch.int64.itemsize:
        return rows.view(torch.int64)
    part = torch.int32.itemsize // rows.itemsize
    if rows.shape[1] % part == 0 and rows.storage_offset() % part == 0:
        return rows.view(torch.int32)
    return rows.view(torch.uint8 if rows.itemsize == 1 else torch.int16)


def _digests(words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which rows are of one value, and a digest of each row."""
    weights = WEIGHTS.first(
        words.shape[1], torch.promote_types(words.dtype, torch.int32), words.device
    )
    is_one_value, digests = [], []
    for part in torch.split(words, max(_PART // words.shape[1], 1)):
        is_one_value.append((part == part[:, :1]).all(dim=1))
        digests.append((part * weights).sum(dim=1, dtype=torch.int64))
    return torch.cat(is_one_value), torch.cat(digests)


class _Weights:
    """Odd numbers without a pattern; those for fewer are the first of those for more."""

    def __init__(self) -> None:
        self._longest: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}

    def first(self, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return so many of them."""
        known = self._longest.get((dtype, device))
        if known is None or len(known) < count:
            known = self._longest[dtype, device] = _odd_numbers(count, device).to(dtype)
        return known[:count]

    def forget(self) -> None:
        """Free their memory."""
        self._longest.clear()


WEIGHTS = _Weights()


def _odd_numbers(count: int, device: torch.device) -> torch.Tensor:
    at = torch.arange(1, count + 1, dtype=torch.int64, device=device) * _SEED
    at = (at ^ (at >> _SHIFT)) * _ODD
    return (at ^ (at >> 32)) & _POSITIVE | 1
