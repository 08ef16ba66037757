"""Pairs of programs: one with a line, which is marked, and the same without it.

Each is a function of its inputs and of whether it has the line, so that both forms are one text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from verification.flaws.programs.program import Sizes, seeded

__all__ = ["CASES", "Case"]

MARK = "# planted"
Made = Callable[[Sizes], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Case:
    """A pair of programs."""

    run: Callable[..., Tensor]  # takes the inputs and ``is_whole``
    inputs: Made

    @property
    def name(self) -> str:
        """What it is called."""
        return self.run.__name__

    @property
    def marked(self) -> tuple[str, int]:
        """The file and the number of the marked line."""
        lines, first = inspect.getsourcelines(self.run)
        (at,) = (at for at, line in enumerate(lines) if line.rstrip().endswith(MARK))
        return inspect.getsourcefile(self.run) or "", first + at


CASES: dict[str, Case] = {}


def planted(inputs: Made) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    def kept(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
        CASES[run.__name__] = Case(run, inputs)
        return run

    return kept


def shape(sizes: Sizes, rows: int = 16384, columns: int = 4096) -> tuple[int, int]:
    return sizes.of((rows, columns), (16, 32))


def matrices(count: int, dtype: torch.dtype = torch.float32, **of: int) -> Made:
    """So many random matrices."""

    def made(sizes: Sizes) -> tuple[Tensor, ...]:
        drawn = seeded(lambda: torch.randn(count, *shape(sizes, **of)), sizes)
        return tuple(each.to(dtype, copy=True) for each in drawn)

    return made


def with_second(second: Callable[[int, int], Tensor], **of: int) -> Made:
    """A random matrix, and what is made of its size."""

    def made(sizes: Sizes) -> tuple[Tensor, ...]:
        rows, columns = shape(sizes, **of)
        return seeded(lambda: (torch.randn(rows, columns), second(rows, columns)), sizes)

    return made


def gathering(index: Callable[[int], Tensor], rows_of_table: int = 65536) -> Made:
    """A matrix with rows of 4 KB, a table with such rows, and which of them are read."""

    def made(sizes: Sizes) -> tuple[Tensor, ...]:
        rows, columns = shape(sizes, 65536, 1024)
        count = sizes.of(rows_of_table, 16)
        return seeded(
            lambda: (torch.randn(rows, columns), torch.randn(count, columns), index(rows) % count),
            sizes,
        )

    return made


def anywhere(count: int) -> Tensor:
    return torch.randint(0, 1 << 40, (count,))


# Arithmetic that nothing hides


@planted(matrices(1, rows=4096))
def ten_of_40_erf(x: Tensor, is_whole: bool) -> Tensor:
    for _ in range(30):
        x = torch.erf(x)
    if is_whole:
        for _ in range(10):
            x = torch.erf(x)  # planted
    return x


@planted(matrices(1, rows=4096))
def twenty_of_60_exp(x: Tensor, is_whole: bool) -> Tensor:
    for _ in range(40):
        x = torch.exp(-x)
    if is_whole:
        for _ in range(20):
            x = torch.exp(-x)  # planted
    return x


@planted(matrices(1, rows=4096))
def ten_of_20_erf_before_sum(x: Tensor, is_whole: bool) -> Tensor:
    for _ in range(10):
        x = torch.erf(x)
    if is_whole:
        for _ in range(10):
            x = torch.erf(x)  # planted
    return x.sum(-1)


@planted(matrices(1))
def double_precision(x: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = torch.sqrt(x.double().abs() + 1.0).float()  # planted
    return x + 1.0


@planted(matrices(1))
def random_numbers(x: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = F.dropout(x, 0.1, training=True)  # planted
    return x + 1.0


@planted(matrices(1, torch.bfloat16))
def gelu(x: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = F.gelu(x)  # planted
    return x + 1.0


# Tensors, and the op that reads each


@planted(matrices(2))
def tensor_float32(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x * y  # planted
    return x + 1.0


@planted(matrices(2, torch.bfloat16))
def tensor_bfloat16(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x * y  # planted
    return x + 1.0


@planted(with_second(lambda rows, columns: torch.randn(columns, rows)))
def tensor_transposed(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x * y.t()  # planted
    return x + 1.0


@planted(with_second(lambda rows, columns: torch.randn(rows, 2 * columns)))
def tensor_strided(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x * y[:, ::2]  # planted
    return x + 1.0


@planted(matrices(2))
def tensor_before_sum(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    if is_whole:
        x = x * y  # planted
    return x.sum(-1)


@planted(matrices(2))
def tensor_before_column_sums(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    if is_whole:
        x = x * y  # planted
    return x.sum(0)


@planted(matrices(2))
def tensor_before_softmax(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    if is_whole:
        x = x + y  # planted
    return torch.softmax(x, -1)


@planted(matrices(2))
def tensor_before_layer_norm(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    if is_whole:
        x = x + y  # planted
    return F.layer_norm(x, x.shape[-1:])


@planted(matrices(4))
def one_tensor_of_four(a: Tensor, b: Tensor, c: Tensor, d: Tensor, is_whole: bool) -> Tensor:
    x = a * b + c
    if is_whole:
        x = x + d  # planted
    return x * 2.0


@planted(with_second(lambda rows, columns: torch.randint(-128, 127, (rows, columns)).char()))
def tensor_of_int8(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x + y.float()  # planted
    return x + 1.0


@planted(with_second(lambda rows, columns: torch.rand(rows, columns) < 0.5))
def tensor_of_bool(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = torch.where(y, x, 0.5)  # planted
    return x + 1.0


# What the kernel reads anyway, or what a cache holds


@planted(with_second(lambda rows, columns: torch.randn(columns)))
def broadcast_row(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x * y  # planted
    return x + 1.0


@planted(with_second(lambda rows, columns: torch.randn(rows, 1)))
def broadcast_column(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x * y  # planted
    return x + 1.0


@planted(matrices(1))
def computed_mask(x: Tensor, is_whole: bool) -> Tensor:
    rows = torch.arange(x.shape[0], device=x.device)[:, None]
    columns = torch.arange(x.shape[1], device=x.device)[None]
    x = x * 2.0
    if is_whole:
        x = torch.where(rows >= columns, x, 0.5)  # planted
    return x + 1.0


@planted(with_second(lambda rows, columns: torch.randint(0, columns, (rows, 1))))
def label_of_row(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    out = torch.logsumexp(x, -1, keepdim=True)
    if is_whole:
        out = out - x.gather(1, y)  # planted
    return out + 1.0


@planted(matrices(2, rows=512))
def tensor_of_8_mb(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x * y  # planted
    return x + 1.0


@planted(matrices(2, rows=64))
def tensor_of_1_mb(x: Tensor, y: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x * y  # planted
    return x + 1.0


# Reductions


@planted(matrices(1))
def subtracted_mean(x: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x - x.mean(-1, keepdim=True)  # planted
    return x + 1.0


@planted(matrices(1))
def softmax(x: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = torch.softmax(x, -1)  # planted
    return x + 1.0


@planted(matrices(1))
def layer_norm(x: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = F.layer_norm(x, x.shape[-1:])  # planted
    return x + 1.0


@planted(matrices(1, torch.bfloat16))
def rms_norm(x: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = F.rms_norm(x, x.shape[-1:])  # planted
    return x + 1.0


# Gathers and scatters


@planted(gathering(anywhere))
def rows_anywhere(x: Tensor, table: Tensor, index: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x + table[index]  # planted
    return x + 1.0


@planted(gathering(torch.arange))
def rows_in_order(x: Tensor, table: Tensor, index: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x + table[index]  # planted
    return x + 1.0


@planted(gathering(lambda rows: anywhere(rows).sort().values))
def rows_sorted(x: Tensor, table: Tensor, index: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x + table[index]  # planted
    return x + 1.0


@planted(gathering(lambda rows: anywhere(rows) % 16))
def few_rows(x: Tensor, table: Tensor, index: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x + table[index]  # planted
    return x + 1.0


@planted(gathering(anywhere, rows_of_table=4096))
def rows_of_16_mb(x: Tensor, table: Tensor, index: Tensor, is_whole: bool) -> Tensor:
    x = x * 2.0
    if is_whole:
        x = x + table[index]  # planted
    return x + 1.0


@planted(with_second(lambda rows, columns: torch.randint(0, columns, (rows, columns)), rows=8192))
def elements_anywhere(x: Tensor, index: Tensor, is_whole: bool) -> Tensor:
    y = x * 2.0
    if is_whole:
        y = y + x.gather(1, index)  # planted
    return y + 1.0


@planted(gathering(anywhere))
def tensor_before_scatter(x: Tensor, table: Tensor, index: Tensor, is_whole: bool) -> Tensor:
    if is_whole:
        x = x * table  # planted
    embedding: Any = torch.ops.aten.embedding_dense_backward
    summed: Tensor = embedding(x, index, table.shape[0], -1, False)
    return summed
