"""Two tensors have one digest if their bits are equal, and rows are counted that are equal."""

from __future__ import annotations

import pytest
import torch

from profiler_ext.values.fingerprints import (
    Fingerprint,
    filled_slices,
    fingerprint,
    is_plain,
    read_fingerprint,
    read_part,
    rows_known_before,
    rows_of,
)

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64)
SHAPES = ((8, 16), (4, 8, 17), (5, 7, 3, 9), (4096,), (77,), (1, 130))


def found(tensor: torch.Tensor) -> Fingerprint:
    """Return the fingerprint of a tensor."""
    return read_fingerprint(fingerprint(tensor)[0].tolist(), rows_of(tensor))


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return numbers of any kind."""
    torch.manual_seed(0)
    if dtype is torch.bool:
        return torch.rand(shape) > 0.5
    if dtype is torch.int64:
        return torch.randint(-(2**40), 2**40, shape)
    return torch.randn(shape, dtype=dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_digest_is_of_the_values_in_their_order(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    tensor = drawn(shape, dtype)
    changed = tensor.clone().flatten()
    changed[-1] = ~changed[-1] if dtype is torch.bool else changed[-1] + 1
    assert found(tensor.clone()) == found(tensor)
    assert found(changed.view(shape)).digest != found(tensor).digest
    assert found(tensor.flip(-1)).digest != found(tensor).digest
    strided = torch.stack([tensor, tensor], dim=-1)[..., 0]
    assert found(strided).digest == found(tensor).digest


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_value_throughout_is_constant(dtype: torch.dtype) -> None:
    if not dtype.is_complex:  # whose parts differ
        assert found(torch.ones(9, 16, dtype=dtype)).is_constant
    assert found(torch.zeros(99, dtype=dtype)).is_constant
    assert not found(drawn((9, 16), dtype)).is_constant


def test_a_zero_with_a_sign_is_a_zero() -> None:
    assert found(torch.zeros(9, 16).copysign(torch.randn(9, 16))) == found(torch.zeros(9, 16))


def test_rows_equal_to_earlier_ones_are_counted_but_not_those_of_one_value() -> None:
    rows = torch.randn(5, 16)
    assert found(rows.repeat(4, 1)).equal_rows == 15
    assert found(rows).equal_rows == 0
    assert found(torch.cat([torch.zeros(50, 16), rows])).equal_rows == 0
    assert found(rows.repeat_interleave(3, 0).view(3, 5, 16)).equal_rows == 10


def test_short_rows_and_whole_numbers_are_not_compared_by_rows() -> None:
    assert rows_of(torch.randn(64, 4)) == rows_of(torch.ones(64, 16, dtype=torch.int64)) == 0
    assert rows_of(torch.randn(64)) == rows_of(torch.tensor(1.0)) == 0


def test_a_long_tensor_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.randn(64, 32)
    whole = found(tensor)
    monkeypatch.setattr("profiler_ext.values.fingerprints._PART", 256)
    assert found(tensor) == whole


def part(gradient: torch.Tensor, *, with_features: bool = False) -> float:
    """Return the part of a gradient that is in slices with values."""
    shape = tuple(gradient.shape)
    return read_part(filled_slices(gradient).tolist(), shape, with_features=with_features)


def test_slices_of_zeros_along_any_dimension_but_the_features_are_left_out() -> None:
    gradient = torch.zeros(4, 10, 16)
    gradient[:, 7:] = 1
    assert part(gradient) == pytest.approx(0.3)
    gradient = torch.zeros(4, 8, 10, 10)
    gradient[:, :, 2:4, 2:7] = 1
    assert part(gradient) == pytest.approx(0.1)
    gradient = torch.zeros(4, 10, 16)
    gradient[..., :4] = 1
    assert part(gradient) == 1.0
    assert part(gradient, with_features=True) == pytest.approx(0.25)


def test_of_images_and_heads_a_row_is_all_of_a_position() -> None:
    gradient = torch.zeros(2, 8, 10, 16)
    gradient[0, :, 3] = gradient[1, :4, 5] = gradient[1, 2, 7] = 1
    assert part(gradient) == pytest.approx(3 / 20)
    gradient = torch.zeros(2, 8, 4, 16)
    gradient[:, 3] = 1
    assert part(gradient) == 1.0


def test_rows_here_and_there_are_left_out_and_zeros_here_and_there_are_not() -> None:
    gradient = torch.zeros(4, 10, 16)
    gradient[0, 3] = gradient[2, 5] = 1
    assert part(gradient) == pytest.approx(2 / 40)
    assert part(torch.randn(64, 64).relu()) == 1.0


@pytest.mark.parametrize("shape", [(), (1,), (5,)])
def test_a_gradient_of_zeros_has_nothing_left(shape: tuple[int, ...]) -> None:
    assert part(torch.zeros(shape)) == 0.0
    assert part(torch.ones(shape)) == 1.0


def test_what_has_no_plain_values_is_not_compared() -> None:
    assert is_plain(torch.nn.Parameter(torch.ones(3)))
    assert not is_plain(torch.ones(3, device="meta"))
    assert not is_plain(torch.eye(3).to_sparse())
    assert not is_plain(torch.empty(0))
    assert not is_plain(3.0)


def test_rows_of_earlier_calls_are_counted_and_not_those_within_a_call() -> None:
    first, second, third = torch.randn(5, 16), torch.randn(3, 16), torch.zeros(4, 16)
    calls = [first, torch.cat([first, second]), torch.cat([second, second, third]), third]
    rows = [fingerprint(each)[1] for each in calls]
    assert rows_known_before([each for each in rows if each is not None]).tolist() == [0, 5, 6, 0]
