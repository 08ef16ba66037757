"""The peaks of recorded H100 steps: the allocator's own count, and sizes that tell the line."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest

from profiler_ext.memory.peak import AliveBlock, StepPeak, peaks_of
from profiler_ext.records.memory import (
    BirthEvidence,
    LifeEvidence,
    LifeReason,
    MemoryGap,
    MemoryKind,
    UnusedKind,
)
from profiler_ext.sessions.session import Session, load

RECORDED = Path(__file__).parents[1] / "fixtures" / "h200" / "memory"
# ``torch.cuda.max_memory_allocated()`` of the steps, as the program printed them; in the first
# recorded step of the Llama a frame of ours still held the batch before it.
PEAKS = {
    "gpt_eager": (537_559_040, 537_559_040, 537_559_040),
    "gpt_compiled": (423_486_464, 423_486_464, 423_486_464),
    "gpt_graphs": (215_861_760, 215_861_760, 215_861_760),
    "llama_compiled": (504_564_224, 504_543_232, 504_543_232),
    "unet_compiled": (298_996_736, 298_996_736),
}
every_program = pytest.mark.parametrize("name", PEAKS)


@lru_cache
def recorded(name: str) -> Session:
    return load(RECORDED / f"{name}.session.pt.trace.json.gz")


def peaks(name: str) -> tuple[StepPeak, ...]:
    return tuple(each for each in peaks_of(recorded(name).analysis) if each.device == 0)


@every_program
def test_the_peak_is_the_allocators_to_the_byte(name: str) -> None:
    assert tuple(each.peak_bytes for each in peaks(name)) == PEAKS[name]


@every_program
def test_the_blocks_add_up_to_the_peak(name: str) -> None:
    for peak in peaks(name):
        assert sum(each.size_bytes for each in peak.blocks) == peak.peak_bytes
        assert all(each.place.gap != MemoryGap.UNSEEN for each in peak.blocks)
    table = recorded(name).columns("by_memory")
    for step, expected in enumerate(PEAKS[name], 5):
        rows = [row for row in table.records() if (row["step"], row["device"]) == (step, 0)]
        assert sum(row["peak_bytes"] for row in rows) == expected


@every_program
def test_99_percent_has_a_kind_and_a_line_or_an_owner(name: str) -> None:
    for peak in peaks(name):
        known = [
            each
            for each in peak.blocks
            if each.kind is not MemoryKind.OTHER and (each.place.line or each.name)
        ]
        assert sum(each.size_bytes for each in known) >= 0.99 * peak.peak_bytes


@pytest.mark.parametrize("name", ["gpt_eager", "gpt_compiled", "llama_compiled"])
def test_parameters_and_optimizer_state_are_those_of_the_model(name: str) -> None:
    sums = Counter[MemoryKind]()
    for block in peaks(name)[-1].blocks:
        sums[block.kind] += block.size_bytes
    expected = {  # of blocks, which are rounded up
        "gpt_eager": (53_664_768, 109_976_064),
        "gpt_compiled": (53_664_768, 110_941_184),
        "llama_compiled": (39_864_320, 80_390_656),
    }
    assert (sums[MemoryKind.PARAMETERS], sums[MemoryKind.OPTIMIZER]) == expected[name]
    assert sums[MemoryKind.WORKSPACES] == 2 * (32 << 20)


ROWS, WIDTH, WORDS, HEADS, TIME = 7 * 251, 384, 8009, 6, 251
HIDDEN = ROWS * WIDTH
# Of the GPT by its source: the sizes of all that a line can make, forward and backward, in bytes
OF_LINE = {
    16: (  # q, k, v = self.qkv(self.n1(x))...
        *(ROWS * 4, HIDDEN * 2, HIDDEN * 4, 3 * HIDDEN * 2, 3 * WIDTH * WIDTH * 2, 3 * WIDTH * 2),
    ),
    17: (HIDDEN * 2, 7 * HEADS * TIME * 4, 16, 8),  # scaled_dot_product_attention
    18: (HIDDEN * 2, HIDDEN * 4, HIDDEN, WIDTH * WIDTH * 2, WIDTH * 2),  # x + drop(out(...))
    19: (*(ROWS * 4, HIDDEN * 2, HIDDEN * 4, 4 * HIDDEN * 2, 4 * WIDTH * WIDTH * 2),),  # up(n2(x))
    20: (4 * HIDDEN * 2, 4 * HIDDEN * 4),  # F.gelu(h)
    21: (HIDDEN * 2, HIDDEN * 4, HIDDEN, 4 * WIDTH * WIDTH * 2, WIDTH * 2),  # x + drop(down(h))
    30: (HIDDEN * 4, TIME * WIDTH * 4),  # self.tok(x) + self.pos(self.at)
    33: (  # logits = self.head(self.norm(h))
        *(ROWS * 4, HIDDEN * 2, HIDDEN * 4, WORDS * WIDTH * 2, ROWS * WORDS * 2),
        # As Inductor pads them for the tensor cores: rows to 1760, words to 8016, strides to 8064
        *(8016 * WIDTH * 2, 1760 * WIDTH * 2, (1759 * 8064 + 8016) * 2),
    ),
    34: (ROWS * WORDS * 4, ROWS * WORDS * 2, ROWS * 4, 4),  # F.cross_entropy
    40: (ROWS * 8,),
    41: (ROWS * 8,),
    45: (4,),
}


def _fits(block: AliveBlock, size_bytes: int) -> bool:
    """The allocator rounds up to 512 bytes; a large block keeps a rest of up to a mebibyte."""
    rest = block.size_bytes - size_bytes
    return 0 <= rest < 512 + ((1 << 20) if size_bytes > 1 << 20 else 0)


@pytest.mark.parametrize("name", ["gpt_eager", "gpt_compiled"])
def test_sizes_are_those_that_the_line_makes(name: str) -> None:
    for peak in peaks(name):
        lined = [each for each in peak.blocks if each.place.line is not None]
        assert len(lined) == {"gpt_eager": 96, "gpt_compiled": 89}[name]
        for block in lined:
            assert block.place.line is not None and block.place.file is not None
            assert block.place.file.endswith("memory47_program.py")
            sizes = OF_LINE[block.place.line]
            assert any(_fits(block, size) for size in sizes), (block.place.line, block.size_bytes)


def test_a_block_of_a_graph_has_the_wrappers_line() -> None:
    blocks = peaks("gpt_compiled")[-1].blocks
    found = Counter(each.evidence for each in blocks if each.kernel)
    assert set(found) == {BirthEvidence.WRAPPER_LINE}
    assert all(each.buffer for each in blocks if each.kernel.startswith("triton"))


def test_what_graph_replays_use_is_not_in_the_allocators_count() -> None:
    peak = peaks("gpt_graphs")[-1]
    assert peak.place.phase == "optimizer"
    assert not any(each.kind is MemoryKind.SAVED for each in peak.blocks)


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_says_where_the_peak_is_and_fits(width: int) -> None:
    lines = recorded("gpt_compiled").report("memory", width=width).splitlines()
    text = " ".join(lines)
    assert "Peak of device 0: 404 MiB (423,486,464 bytes) in step 5, backward at" in text
    assert "saved activations 148 MiB 36.6% 82" in " ".join(text.split())
    assert "(workspaces) 64 MiB 15.8% 2" in " ".join(text.split())
    assert all(len(line) <= width for line in lines)


def test_99_percent_says_why_it_lives() -> None:
    for name in PEAKS:
        for peak in peaks(name):
            known = sum(each.size_bytes for each in peak.blocks if each.life.reason is not None)
            assert known >= 0.99 * peak.peak_bytes, name


def test_memory_that_is_reused_says_what_is_in_it_at_the_peak() -> None:
    # ``buf1 = reinterpret_tensor(mm_default_5, ...); del mm_default_5  # reuse``: where the logits
    # were is their gradient, which a matrix product reads
    (logits,) = (
        each for each in peaks("gpt_compiled")[-1].blocks if each.life.saved_as == "mm_default_5"
    )
    assert (logits.life.reason, logits.life.evidence) == ("to_be_read", "wrapper")
    assert logits.life.reused == ("buf1",)
    assert [(each.text, each.place.line) for each in logits.life.needed_by] == [
        ("aten.mm.default in extern_kernels.mm", 33)
    ]


def test_saved_values_are_needed_by_the_derivative_of_their_reader() -> None:
    lines = Counter(
        (each.place.line, need.name, need.place.line)
        for each in peaks("gpt_compiled")[-1].blocks
        if each.life.reason is LifeReason.SAVED_BY_GRAPH and each.place.line in (19, 20)
        for need in each.life.needed_by
    )
    # Line 19 is ``h = up(n2(x))``, line 20 ``F.gelu(h)``, line 21 ``down(h)``, of four layers
    assert lines == {
        (19, "aten.gelu.default", 20): 4,
        (20, "aten.mm.default", 21): 4,
        (19, "aten.mm.default", 19): 5,  # the input of a layer, and weights that autocast made
        (19, "aten.native_layer_norm_backward.default", 19): 4 * (3 + 1),
    }


def test_saved_values_have_the_partitioners_reason() -> None:
    saved = [b for b in peaks("unet_compiled")[-1].blocks if b.kind is MemoryKind.SAVED]
    assert Counter(each.life.reason for each in saved) == {
        LifeReason.MIN_CUT: 34,
        LifeReason.MATERIALIZED: 29,
        LifeReason.NOT_RECOMPUTABLE: 12,
        LifeReason.UNREAD: 3,
    }
    assert all(each.life.needed_by for each in saved)


def test_what_no_kernel_of_the_backward_reads_is_named() -> None:
    # The derivative of ``avg_pool2d`` (line 18) takes the pool's input, for its shape alone
    found = [b for b in peaks("unet_compiled")[-1].blocks if b.life.reason is LifeReason.UNREAD]
    sizes = [7 * channels * side * side * 2 for channels, side in ((64, 96), (128, 48), (256, 24))]
    assert [each.size_bytes for each in found] == sizes
    names = {(need.name, need.place.line) for each in found for need in each.life.needed_by}
    assert names == {("aten.avg_pool2d_backward.default", 18)}


def test_a_scalar_that_keeps_a_tensors_memory_has_its_variable() -> None:
    # ``mse_loss`` computes in the memory of its result, which it then makes smaller
    (loss,) = (b for b in peaks("unet_compiled")[-1].blocks if b.life.held_by == "loss of step")
    assert loss.size_bytes == 7 * 3 * 96 * 96 * 4 and loss.life.evidence is LifeEvidence.VARIABLE


# As the program printed them: the allocator's peak, and what it had reserved
RESERVED = {"fsdp2": (479_648_256, 595_591_168), "own_cuda_graph": (430_785_024, 868_220_928)}


@pytest.mark.parametrize("name", RESERVED)
def test_a_peak_and_what_is_unused_are_what_the_allocator_reserved(name: str) -> None:
    for peak in peaks(name):
        assert peak.unused is not None
        unused = sum(each.size_bytes for each in peak.unused if each.kind is not UnusedKind.OUTSIDE)
        assert (peak.peak_bytes, peak.peak_bytes + unused) == RESERVED[name]
        assert sum(each.size_bytes for each in peak.blocks) == peak.peak_bytes


def test_what_fsdp_gathers_and_reduces_has_the_sizes_of_its_parameters() -> None:
    wide, words, time = 384, 8064, 251
    root = [words * wide, time * wide, wide, wide, words * wide]
    of_block = 12 * wide * wide + 13 * wide
    for peak in peaks("fsdp2"):
        of_kind = {
            kind: sorted(each.size_bytes for each in peak.blocks if each.kind is kind)
            for kind in (MemoryKind.UNSHARDED, MemoryKind.COMMUNICATION)
        }
        rounded = sorted(-(-4 * size // 512) * 512 for size in root)
        gathered = of_kind[MemoryKind.UNSHARDED]
        assert len(gathered) == len(rounded)
        for size, least in zip(gathered, rounded, strict=True):
            assert 0 <= size - least < 1 << 20
        assert of_kind[MemoryKind.COMMUNICATION] == [-(-4 * of_block // 512) * 512]


def test_the_pool_of_a_cuda_graph_is_of_its_recording() -> None:
    (peak, _) = peaks("own_cuda_graph")
    names = {each.name for each in peak.blocks if each.kind is MemoryKind.GRAPH_POOLS}
    assert names == {"torch.cuda.graph", "float32"}  # the loss, which the program holds


def test_the_screen_says_what_is_reserved() -> None:
    text = " ".join(recorded("own_cuda_graph").report("memory", width=120).split())
    assert (
        "Reserved then: 828 MiB, of it 254 MiB free in CUDA graph pools, 163 MiB fragments, "
        "6.56 MiB rounding; 3.83 GiB outside the allocator" in text
    )
