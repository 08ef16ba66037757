"""What lowers the peak: claims of recorded sessions, and of planted flaws against their remedy."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import profiler_ext
from profiler_ext import cli
from profiler_ext.findings.facts import CannotJudge
from profiler_ext.kineto.names import owners_reading
from profiler_ext.memory.peak import peaks_of
from profiler_ext.memory.pricing import Remedied, memory_facts
from profiler_ext.memory.recommendations import MemoryFinding, MemoryFindings, judge, merged
from profiler_ext.memory.rules import RULES, find, fragmented, optimizer
from profiler_ext.records.memory import MemoryKind
from profiler_ext.records.vocabulary import Phase
from profiler_ext.sessions.session import Session
from tests import compiling
from tests.memory.test_recorded_peaks import PEAKS, RECORDED, recorded

# Another file may have compiled, and had capture forget it; here nothing is compiled.
pytestmark = pytest.mark.filterwarnings("ignore::profiler_ext.errors.LateCaptureWarning")


@pytest.fixture(autouse=True, scope="module")
def capture_ends() -> Iterator[None]:
    """Other files find torch without capture; what they left is not looked through here."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    profiler_ext.disable()


assert compiling  # it imports the compiler, which warns of itself

needs_lines = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="modules of eager work need Python 3.12"
)
WIDE, CLASSES, TOKENS = 64, 1009, 127


def claims(name: str) -> dict[str, MemoryFinding]:
    found = find(recorded(name).analysis).ranked
    return {each.rule: each for each in reversed(found)}


def timed(name: str) -> set[str]:
    return {each.rule for each in find(recorded(name).analysis).ranked if each.extra_ns is not None}


def test_a_recorded_gpt_has_its_claims_most_bytes_first() -> None:
    found = find(recorded("gpt_eager").analysis).ranked
    assert [each.rule for each in found] == [
        "chunked_loss",
        "kept_activations",
        "weight_copies",
        "optimizer_8bit",
    ]
    assert all(each.peak_bytes == PEAKS["gpt_eager"][0] for each in found)
    saved = [each.saved_bytes for each in found]
    assert saved == sorted(saved, reverse=True)
    assert found[1].location.module == "blocks.*"
    # 7 * 251 tokens and 8,009 classes in bfloat16; blocks are up to 1 MiB longer
    logits = {each.name: each.value for each in found[0].evidence}["the logits"]
    assert 0 <= float(logits) - 7 * 251 * 8009 * 2 < 1 << 20


def test_what_goes_is_more_than_what_the_peak_falls() -> None:
    """Without its activations the peak of this step is in the optimizer."""
    found = claims("gpt_compiled")["kept_activations"]
    figures = {each.name: each.value for each in found.evidence}
    assert found.saved_bytes < 0.2 * float(figures["of that at the peak"])


def test_under_cuda_graphs_what_the_pools_hold_is_not_judged() -> None:
    skipped = {each.rule for each in find(recorded("gpt_graphs").analysis).rules_skipped}
    assert {"fragmented_memory", "batch_size"} <= skipped


def test_the_timeline_without_changes_has_the_peak() -> None:
    for name, expected in PEAKS.items():
        facts = memory_facts(recorded(name).analysis)
        assert facts is not None
        assert facts.peak_bytes == facts.peak_without(lambda _: None) == max(expected)
        at_peak = sum(each.size_bytes for each in peaks_of(recorded(name).analysis)[0].blocks)
        assert facts.at_peak(facts.allocations) == at_peak == expected[0]


def test_the_peak_moves_where_a_large_block_goes() -> None:
    facts = memory_facts(recorded("gpt_eager").analysis)
    assert facts is not None
    at = facts.peak_at
    large = max(
        (each for each in facts.allocations if each.born <= at < each.freed and each.born),
        key=lambda each: each.size_bytes,
    )
    remedied = Remedied(facts)
    remedied.remove(large)
    assert remedied.live[at] == facts.peak_bytes - large.size_bytes
    assert facts.peak_bytes - remedied.peak_bytes < large.size_bytes
    remedied.add_moment(large.size_bytes, at)
    assert remedied.peak_bytes == facts.peak_bytes


def test_a_batch_by_the_shapes_of_a_compiled_graph() -> None:
    found = claims("gpt_compiled")["batch_size"]
    figures = {each.name: each.value for each in found.evidence}
    assert (figures["batch"], figures["larger batch"]) == (7, 28)
    assert found.saved_bytes < 0
    assert find(recorded("gpt_compiled").analysis).ranked[-1] == found
    reasons = {s.rule: s.reason for s in find(recorded("gpt_eager").analysis).rules_skipped}
    assert "--shapes" in reasons["batch_size"]


@pytest.mark.parametrize(("name", "is_known"), [("gpt_eager", True), ("unet_compiled", False)])
def test_no_time_is_claimed_where_the_pace_of_training_is_not_known(
    name: str, is_known: bool
) -> None:
    facts = memory_facts(recorded(name).analysis)
    assert facts is not None and bool(facts.why_no_time) is not is_known
    figures = {each.name: each.value for each in claims(name)["kept_activations"].evidence}
    assert figures["on the device that takes"] == {"gpt_eager": 325_099}.get(name, 136_033)
    assert timed(name) == ({"weight_copies"} if is_known else set())


def test_no_time_is_claimed_where_checkpoint_may_keep_the_cpu_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = memory_facts(recorded("gpt_eager").analysis)
    assert facts is not None
    again = facts.launches_of(Phase.FORWARD, "blocks")
    took, why = facts.time_of(again, checkpoints=4)
    assert str(why.value).startswith("the CPU may set the pace then")
    assert facts.price_ns(again, checkpoints=4) is None
    monkeypatch.setattr(facts.times, "busy_ns", 10**9)
    assert facts.time_of(again, checkpoints=4) == (took,)
    assert facts.price_ns(again, checkpoints=4) == took.value


def test_what_we_read_in_a_step_is_no_work_of_the_program() -> None:
    analysis = recorded("unet_compiled").analysis
    facts, events = memory_facts(analysis), analysis.recording.trace.events
    assert facts is not None
    own = [row for row in range(len(events)) if owners_reading(events.name[row]) is not None]
    spans = [(int(events.start_ns[row]), events.end_at(row)) for row in own]
    worked = [
        step.cpu_end_ns - step.cpu_start_ns
        - sum(end - begin for begin, end in spans if step.cpu_start_ns <= begin < step.cpu_end_ns)
        for step in analysis.steps
    ]  # fmt: skip
    waited_ns = min(worked) - facts.times.cpu_ns
    assert len(own) > 4 and 0 <= waited_ns < 0.1 * min(worked)


def test_a_tied_weight_is_of_each_of_its_modules() -> None:
    model = nn.ModuleDict({"tok": nn.Embedding(CLASSES, WIDE), "head": nn.Linear(WIDE, CLASSES)})
    model["head"].weight = model["tok"].weight
    with profiler_ext.profile(memory=True) as prof:
        model["head"](model["tok"](torch.arange(TOKENS))).square().mean().backward()
    facts = memory_facts(prof.session.analysis)
    assert facts is not None
    size_bytes = CLASSES * WIDE * 4
    held = [s for s in facts.of_kind(MemoryKind.PARAMETERS) if s.held_bytes == size_bytes]
    assert [each.held_in for each in held] == [{"tok", "head"}]
    assert held[0].is_of("head") and held[0].is_of("tok") and not held[0].is_of("other")
    assert held[0].block.name == f"{held[0].module}.weight (+1)"


def test_ranks_with_one_state_could_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = recorded("gpt_eager").analysis
    settings = replace(analysis.recording.settings, world_size=4)
    ranked = replace(analysis, recording=replace(analysis.recording, settings=settings))
    facts = memory_facts(analysis)
    assert facts is not None
    monkeypatch.setattr(facts, "analysis", ranked)
    assert not list(optimizer.SHARDED.judge(facts))  # nothing is all-reduced
    monkeypatch.setattr(optimizer, "_reduces_gradients", lambda _: True)
    (found,) = optimizer.SHARDED.judge(facts)
    states = facts.at_peak(facts.of_kind(MemoryKind.OPTIMIZER))
    saved = facts.peak_bytes - found.predicted_peak_bytes
    assert saved == pytest.approx(states * 3 / 4, rel=1e-3)


def test_a_space_takes_the_smallest_free_piece_and_joins_neighbours() -> None:
    space = fragmented._Space()
    for key, size in enumerate((10, 20, 30)):
        space.take(key, size)
    space.give(0)
    space.give(1)
    space.take(3, 25)  # of the 30 that are free together
    assert space.used_to == 60
    space.give(2)
    space.take(4, 40)  # 35 are free at the end: it grows by 5
    assert space.used_to == 65


def test_findings_of_ranks_are_one() -> None:
    own = find(recorded("gpt_eager").analysis)
    other = MemoryFindings(tuple(replace(each, rank=1) for each in own.ranked))
    both = merged([own, other])
    assert [each.rule for each in both.ranked] == [each.rule for each in own.ranked]
    assert both.ranked[0].evidence[-1].value == "0, 1"


def test_a_rule_that_fails_is_not_judged() -> None:
    failing = replace(RULES[0], judge=lambda facts: [facts.nothing])  # type: ignore[attr-defined]
    skipped = judge(recorded("gpt_eager").analysis, [failing]).rules_skipped
    assert "please report it" in skipped[0].reason


def test_the_report_and_its_json_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    session = str(RECORDED / "gpt_eager.session.pt.trace.json.gz")
    assert cli.main(["report", session, "--memory"]) == 0
    printed = capsys.readouterr().out
    below = printed[printed.index("Recommendations, by the bytes that the peak falls") :]
    assert below.index("-139 MiB") < below.index("-110 MiB")
    assert "peak 513 MiB to 403 MiB" in below
    assert cli.main(["report", session, "--findings", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    first = answer["memory"][0]
    assert (first["rule"], first["page"]) == ("chunked_loss", "findings.md#chunked_loss")
    assert first["peak_bytes"] - first["predicted_peak_bytes"] == first["saved_bytes"] > 0
    assert "batch_size" in [each["rule"] for each in answer["memory_rules_skipped"]]


class Reading(nn.Sequential):
    """Reads its first layer's parameters itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, activation, last = self
        return last(activation(F.linear(x, first.weight, first.bias)))  # type: ignore[no-any-return]


class Blocks(nn.Module):
    def __init__(self, checkpoints: bool = False, chunks: int = 1, reads: bool = False) -> None:
        super().__init__()
        block = Reading if reads else nn.Sequential
        self.blocks = nn.ModuleList(
            block(nn.Linear(WIDE, 8 * WIDE), nn.GELU(), nn.Linear(8 * WIDE, WIDE)) for _ in range(4)
        )
        self.head = nn.Linear(WIDE, CLASSES)
        self.checkpoints, self.chunks = checkpoints, chunks

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        if self.chunks == 1:
            return F.cross_entropy(self.head(x), y)
        parts = zip(x.chunk(self.chunks), y.chunk(self.chunks), strict=True)
        sums = [checkpoint(self.of_chunk, *each, use_reentrant=False) for each in parts]
        return torch.stack(sums).sum() / len(y)

    def of_chunk(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(x), y, reduction="sum")


@cache
def trained(
    checkpoints: bool = False,
    chunks: int = 1,
    zeroes: bool = False,
    foreach: bool = True,
    tokens: int = TOKENS,
    reads: bool = False,
) -> Session:
    torch.manual_seed(0)
    model = Blocks(checkpoints, chunks, reads)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach)
    x, y = torch.randn(tokens, WIDE), torch.randint(0, CLASSES, (tokens,))
    schedule = torch.profiler.schedule(wait=2, warmup=1, active=2)
    with profiler_ext.profile(schedule=schedule, strict=True, memory=True) as prof:
        for _ in range(5):
            optimizer.zero_grad(set_to_none=not zeroes)
            model(x, y).backward()
            optimizer.step()
            prof.step()
    return prof.session


def peak_of(session: Session) -> int:
    facts = memory_facts(session.analysis)
    assert facts is not None
    return facts.peak_bytes


def only(session: Session, rule: str) -> MemoryFinding:
    found = [each for each in find(session.analysis).ranked if each.rule == rule]
    assert found, [each.rule for each in find(session.analysis).ranked]
    return found[0]


def is_silent(session: Session, rule: str) -> bool:
    return all(each.rule != rule for each in find(session.analysis).ranked)


def test_gradients_that_are_zeroed() -> None:
    found = only(trained(zeroes=True), "kept_gradients")
    assert found.predicted_peak_bytes == pytest.approx(peak_of(trained()), rel=0.01)
    assert is_silent(trained(), "kept_gradients")


@needs_lines
def test_gradients_of_parameters_that_another_module_reads() -> None:
    found = only(trained(zeroes=True, reads=True), "kept_gradients")
    assert found.predicted_peak_bytes == pytest.approx(peak_of(trained(reads=True)), rel=0.01)


def test_temporaries_of_a_foreach_optimizer() -> None:
    """Of few tokens the peak is in the optimizer."""
    found = only(trained(tokens=8), "optimizer_temporaries")
    remedied = trained(foreach=False, tokens=8)
    # Of one parameter at a time there are two
    left = peak_of(remedied) - found.predicted_peak_bytes
    assert 0 <= left <= 2 * WIDE * CLASSES * 4
    assert is_silent(remedied, "optimizer_temporaries")


@needs_lines
def test_activations_that_a_checkpoint_computes_again() -> None:
    found = only(trained(foreach=False), "kept_activations")
    remedied = trained(checkpoints=True, foreach=False)
    assert found.predicted_peak_bytes == pytest.approx(peak_of(remedied), rel=0.02)
    assert is_silent(remedied, "kept_activations")


@needs_lines
def test_copies_of_the_logits() -> None:
    found = only(trained(foreach=False), "chunked_loss")
    chunks = {each.name: each.value for each in found.evidence}["chunks"]
    remedied = trained(chunks=int(chunks), foreach=False)
    assert found.predicted_peak_bytes == pytest.approx(peak_of(remedied), rel=0.05)
    assert is_silent(remedied, "chunked_loss")


def test_on_the_cpu_rules_of_the_device_say_what_they_lack() -> None:
    facts = memory_facts(trained().analysis)
    assert facts is not None
    lacking = {each.name for each in RULES if isinstance(each.judge(facts), CannotJudge)}
    assert lacking == {"fragmented_memory", "batch_size", "optimizer_8bit"}
