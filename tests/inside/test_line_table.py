"""Each instruction of a kernel has the kernel's own line, also within functions of Triton's."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from profiler_ext.errors import MissingExtraError, UsageError
from profiler_ext.inside import line_table
from profiler_ext.records.kernel_lines import (
    InlinedFrame,
    KernelLine,
    KernelLineEvidence,
    KernelSource,
    LinePart,
)

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
GPUTarget = pytest.importorskip("triton.backends.compiler").GPUTarget
ASTSource = pytest.importorskip("triton.compiler").ASTSource
TARGET = GPUTarget("cuda", 90, 32)


@triton.jit
def summed(given, out, BLOCK: tl.constexpr):
    value = tl.load(given + tl.arange(0, BLOCK))
    total = tl.sum(tl.sigmoid(value), 0)
    tl.store(out, total)


HEAD = summed.starting_line_number + 1  # below the decorator
LOAD, SUM, STORE = HEAD + 1, HEAD + 2, HEAD + 3


@pytest.fixture(scope="module")
def made() -> Any:
    signature = {"given": "*fp32", "out": "*fp32", "BLOCK": "constexpr"}
    return triton.compile(ASTSource(summed, signature, {(2,): 512}), target=TARGET)


@pytest.fixture(scope="module")
def table(made: Any) -> line_table.LineTable:
    return line_table.read(made.asm["ptx"], made.asm["cubin"], made.metadata._asdict())


def test_every_instruction_that_runs_has_a_line_of_the_kernel(table):
    assert (table.kernel, table.head, table.gap) == ("summed", HEAD, None)
    running = [each for each in table.instructions if not each.is_padding]
    assert {each.line for each in running} == {HEAD, LOAD, SUM, STORE}
    assert [each.offset for each in table.instructions] == list(
        range(0, 16 * len(table.instructions), 16)
    )


def test_loads_and_stores_have_the_lines_that_ask_for_them(table):
    lines = {each.opcode.partition(".")[0]: each.line for each in table.instructions}
    assert (lines["LDG"], lines["STG"], lines["SHFL"]) == (LOAD, STORE, SUM)


def test_the_chain_names_the_functions_of_triton_that_were_inlined(table):
    chains = Counter(
        tuple(frame.function for frame in each.chain) for each in table.instructions if each.chain
    )
    assert ("sum", "summed") in chains
    assert ("_sum_combine", "sum", "summed") in chains
    sums = [each for each in table.instructions if each.opcode.startswith("SHFL")]
    assert {each.chain[-1] for each in sums} == {InlinedFrame(Path(__file__).name, SUM, "summed")}


def test_what_follows_the_end_never_runs(table):
    padding = [each for each in table.instructions if each.is_padding]
    assert {each.opcode for each in padding} <= {"BRA", "NOP"}
    assert table.instructions[-len(padding) :] == tuple(padding)
    assert table.instructions[-len(padding) - 1].opcode == "EXIT"


def test_an_instruction_is_of_what_its_line_is_of(table):
    node = KernelLine(LinePart.NODE, KernelLineEvidence.CONFIRMED, ("sum_1",))
    frame = KernelLine(LinePart.FRAME, KernelLineEvidence.FORM)
    text = "import triton\n@triton.jit\ndef summed(given):\n  load\n  sum\n  store"
    source = KernelSource(None, "summed", (), text, (frame, frame, frame, frame, node, frame))
    of_sum = next(each for each in table.instructions if each.line == SUM)
    assert table.number_in(source, of_sum) == 5
    assert line_table.part_of(of_sum, source, table) is node
    last = table.instructions[-1]
    assert line_table.part_of(last, source, table) == frame


def test_of_another_kernels_code_no_instruction_has_a_line(made):
    signature = {"given": "*fp32", "out": "*fp32", "BLOCK": "constexpr"}
    other = triton.compile(ASTSource(summed, signature, {(2,): 1024}), target=TARGET)
    found = line_table.read(made.asm["ptx"], other.asm["cubin"], made.metadata._asdict())
    assert found.instructions == ()
    assert found.gap == "its PTX assembles to other code than that which runs"


def test_without_places_in_the_ptx_there_is_no_table(made):
    rows = [row for row in made.asm["ptx"].split("\n") if ".loc" not in row]
    found = line_table.read("\n".join(rows), made.asm["cubin"], made.metadata._asdict())
    assert (found.instructions, found.gap) == ((), "its PTX has no line table")


def test_a_folder_that_lacks_a_file_is_refused_with_its_name(tmp_path):
    with pytest.raises(UsageError, match=r"there is no .*summed\.ptx; name a folder of Triton's"):
        line_table.read_folder(tmp_path, "summed")


def test_code_without_its_ptx_has_the_lines_of_the_folder_whose_ptx_assembles_to_it(made, tmp_path):
    signature = {"given": "*fp32", "out": "*fp32", "BLOCK": "constexpr"}
    other = triton.compile(ASTSource(summed, signature, {(2,): 1024}), target=TARGET)
    for name, whole in (("a", other), ("b", made)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summed.ptx").write_text(whole.asm["ptx"])
        metadata = json.dumps(whole.metadata._asdict(), default=vars)
        (tmp_path / name / "summed.json").write_text(metadata)
    alone = tmp_path / "c"
    alone.mkdir()
    (alone / "summed.cubin").write_bytes(made.asm["cubin"])
    found = line_table.read_folder(alone, "summed", tmp_path)
    assert found.gap is None
    assert {LOAD, SUM, STORE} < {each.line for each in found.instructions}
    (tmp_path / "b" / "summed.ptx").unlink()
    found = line_table.read_folder(alone, "summed", tmp_path)
    assert found.gap == "its PTX assembles to other code than that which runs"


def test_without_its_disassembler_triton_is_refused_with_a_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr(triton, "__file__", str(tmp_path / "__init__.py"))
    line_table._disassembler.cache_clear()
    with pytest.raises(MissingExtraError, match="triton came without nvdisasm; install triton"):
        line_table._disassembler()
    line_table._disassembler.cache_clear()
