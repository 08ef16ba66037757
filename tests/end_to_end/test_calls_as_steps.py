"""Of a script that does not train the call that repeats is the step, of one that does never."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn.modules import module as modules

from profiler_ext.records.step_kinds import kinds_of_steps
from profiler_ext.run import window
from profiler_ext.torch_compat import process
from tests.end_to_end.script_runs import Run, exits, messages, out, run, steps

__all__ = ["exits", "run"]

Capture = pytest.CaptureFixture[str]

NETS = """
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)
        def forward(self, x): return torch.relu(self.inner(x))
    net, loss, x = Net(), torch.nn.MSELoss(), torch.ones(2, 4)
"""
TRAINS = """
def step():
    model(torch.ones(2, 4)).sum().backward()
    sgd.step()
"""
INFERS = NETS + "    del sgd, adam\n    torch.set_grad_enabled(False)\n"


@pytest.fixture(autouse=True)
def as_in_a_process_of_its_own(
    fresh_torch: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Let go of earlier scripts' optimizers, which would be this one's, and leave gradients on."""
    monkeypatch.setattr(window, "_SETTLING_S", 0.0)
    gc.collect()
    assert process.live_optimizer() is None
    yield
    torch.set_grad_enabled(True)


def step_call() -> str:
    return out().recording.settings.step_call


def calls_of(op: str) -> dict[int, int]:
    launched = out().launches()
    counts: dict[int, int] = launched[launched.name == op].groupby("step").size().to_dict()
    return counts


def test_each_call_of_the_model_of_a_loop_is_a_step(run: Run, capfd: Capture) -> None:
    assert run(INFERS + "    for n in range(12): net(x)") == 0
    assert steps(out()) == [8, 9]
    assert calls_of("aten::linear") == {8: 1, 9: 1}
    assert out().recording.settings.step_source == "forward"
    assert step_call() == "the module `Net` (script.py:15)"
    written = capfd.readouterr()
    assert "a step is a call of the module `Net`" in " ".join(written.out.split())
    assert "profiler-ext: the script" not in written.err


def test_a_loss_next_to_the_model_ends_no_step(run: Run) -> None:
    assert run(INFERS + "    for n in range(12): loss(net(x), x)") == 0
    assert step_call() == "the module `Net` (script.py:15)"
    assert calls_of("aten::mse_loss") == {8: 1, 9: 1}


def test_of_an_encoder_and_a_decoder_the_decoder_is_the_step(run: Run) -> None:
    body = """
    encoder = torch.nn.Sequential(torch.nn.Tanh())
    for prompt in range(2): encoder(x)
    for token in range(20): net(x)
    """
    assert run(INFERS + body) == 0
    assert step_call() == "the module `Net` (script.py:15)"
    assert calls_of("aten::tanh") == {}
    assert calls_of("aten::linear") == {8: 1, 9: 1}


def test_tokens_of_a_compiled_function_are_steps_and_its_prompts_are_not(run: Run) -> None:
    body = """
    def prefill(x): return net(x)
    def decode(x): return net(x) + 1
    prefill = torch.compile(prefill, backend="eager")
    decode = torch.compile(decode, backend="eager")
    for prompt in range(2):
        prefill(x)
        for token in range(8): decode(x)
    """
    assert run(INFERS + body) == 0
    assert step_call() == "the compiled function `decode` (script.py:21)"


@pytest.mark.parametrize("options", [(), ("--step-on", "forward")])
def test_a_compiled_forward_that_is_called_past_the_module_is_the_step(
    run: Run, options: tuple[str, ...]
) -> None:
    """As ``generate()`` of transformers does with a static cache."""
    body = """
    forward = torch.compile(net.__call__, backend="eager")
    for prompt in range(2):
        net(x)
        for token in range(20): forward(x)
    """
    assert run(INFERS + body, *options) == 0
    assert step_call() == "the compiled module `Net` (script.py:15)"
    assert calls_of("aten::relu") == ({5: 1, 6: 1} if options else {8: 1, 9: 1})


@pytest.mark.parametrize(
    ("calls", "recorded", "expected"),
    [
        (2, [1], "2 calls of the module `Net` (script.py:15), too few to skip 5 and record 2 of "
         "them: an early one was recorded; their time includes warm-up"),
        (3, [1, 2], "3 calls of the module `Net` (script.py:15), too few to skip 5 and record 2 of "
         "them: 2 early ones were recorded; their time includes warm-up"),
        (8, [1, 2], "8 calls of the module `Net` (script.py:15), too few to skip 5 and record 2 "
         "of them: 2 early ones were recorded; their time includes warm-up"),
    ],
)  # fmt: skip
def test_a_script_with_few_calls_keeps_early_ones(
    run: Run, capfd: Capture, calls: int, recorded: list[int], expected: str
) -> None:
    assert run(INFERS + f"    for n in range({calls}): net(x)") == 0
    assert steps(out()) == recorded
    assert calls_of("aten::linear") == dict.fromkeys(recorded, 1)
    (line,) = messages(capfd)
    assert line == f"profiler-ext: the script ended after {expected}"
    timed = out().recording.settings.unprofiled_steps_ns  # after the early ones
    assert len(timed) == {2: 0, 3: 0, 8: 3}[calls]


def test_the_one_call_after_a_compiled_warm_up_is_recorded(run: Run) -> None:
    body = """
    compiled = torch.compile(lambda x: net(x), backend="eager")
    compiled(x)
    compiled(x)
    """
    assert run(INFERS + body) == 0
    assert calls_of("aten::linear") == {1: 1}


def test_of_a_single_call_it_says_how_to_record_it(run: Run, capfd: Capture) -> None:
    assert run(INFERS + "    net(x)") == 3
    (line,) = messages(capfd)
    assert "calls of the module `Net` (script.py:15) (once)" in line
    assert line.endswith("or record the whole script with --skip 0")


@pytest.mark.parametrize(
    ("loop", "recorded", "said"),
    [
        ("for n in range(3): step()", [1, 2], "3 steps, too few to skip 5: recorded 1, 2"),
        ("for n in range(2): step()", [1], "2 steps, too few to skip 5: recorded 1"),
        ("for n in range(5): step()", [3, 4], "5 steps, too few to skip 5: recorded 3, 4"),
    ],
)
def test_of_a_loop_of_few_training_steps_the_last_are_recorded(
    run: Run, capfd: Capture, loop: str, recorded: list[int], said: str
) -> None:
    assert run(TRAINS + loop) == 0
    assert steps(out()) == recorded
    (line,) = messages(capfd)
    assert line == f"profiler-ext: the loop has {said}; their time includes warm-up"


def test_a_loop_of_enough_training_steps_is_recorded_as_asked(run: Run, capfd: Capture) -> None:
    assert run(TRAINS + "for n in range(7): step()") == 0
    assert steps(out()) == [5, 6]
    assert messages(capfd) == []


def test_gradients_that_accumulate_end_no_step(run: Run) -> None:
    body = """
    for batch in range(96):
        step_loss = loss(model(x), x) / 12
        step_loss.backward()
        if batch % 12 == 11: sgd.step()
    """
    assert run(NETS + body) == 0
    assert steps(out()) == [5, 6]
    assert out().recording.settings.step_source == "Optimizer.step"
    assert step_call() == ""
    assert calls_of("aten::linear") == {5: 12, 6: 12}


def test_after_an_evaluation_the_training_steps_are_recorded(run: Run, capfd: Capture) -> None:
    body = """
    with torch.no_grad():
        for batch in range(9): model(x)
    for n in range(8): step()
    """
    assert run(NETS + body) == 0
    assert steps(out()) == [5, 6]
    assert out().recording.settings.step_source == "Optimizer.step"
    assert step_call() == ""
    assert messages(capfd) == []


def test_where_the_training_is_too_short_it_says_that_the_evaluation_was_recorded(
    run: Run, capfd: Capture
) -> None:
    body = """
    with torch.no_grad():
        for batch in range(9): model(x)
    for n in range(2): step()
    """
    assert run(NETS + body) == 0
    assert step_call().startswith("the module `Linear`")
    (line,) = messages(capfd)
    assert line.startswith(
        "profiler-ext: the script ended after 2 steps of training, too few to skip 5 and"
    )
    assert line.endswith("before them were recorded; use a smaller --skip")


def test_an_evaluation_with_an_optimizer_at_hand_is_recorded(run: Run) -> None:
    body = """
    with torch.no_grad():
        for batch in range(9): model(x)
    """
    assert run(NETS + body) == 0
    assert steps(out()) == [5, 6]
    assert step_call().startswith("the module `Linear`")


def test_a_script_of_its_own_optimizer_steps_with_its_forward(run: Run) -> None:
    body = """
    del sgd, adam
    for n in range(12):
        loss(net(x), x).backward()
        with torch.no_grad():
            for each in net.parameters():
                each -= 0.1 * each.grad
                each.grad = None
    """
    assert run(NETS + body) == 0
    assert step_call() == "the module `Net` (script.py:15)"
    assert calls_of("aten::mse_loss") == {8: 1, 9: 1}


def test_own_steps_of_the_script_take_precedence_over_calls(run: Run) -> None:
    body = """
    from torch.profiler import profile, schedule
    own = profile(schedule=schedule(wait=99, warmup=1, active=1))
    own.start()
    for n in range(10):
        for batch in range(3): net(x)
        own.step()
    own.stop()
    """
    assert run(INFERS + body) == 0
    assert out().recording.settings.step_source == "prof.step"
    assert set(calls_of("aten::linear").values()) == {3}


def test_the_script_ends_when_the_recorded_calls_are_written(run: Run, capfd: Capture) -> None:
    body = "    for n in range(40): net(x)\n    print('the end')"
    assert run(INFERS + body, "--stop") == 0
    assert steps(out()) == [8, 9]
    assert "the end" not in capfd.readouterr().out


def test_nothing_is_left_behind_and_nothing_is_there_while_torch_compiles(
    run: Run, capfd: Capture
) -> None:
    body = """
    from torch.nn.modules import module as modules
    seen = []
    def backend(graph, inputs):
        seen.append(bool(modules._has_any_global_hook()))
        return graph
    net(x), net(x)
    compiled = torch.compile(net, backend=backend)
    for n in range(12): compiled(x)
    print("hooks while compiling:", seen)
    """
    assert run(INFERS + body) == 0
    written = capfd.readouterr()
    assert "hooks while compiling: [False]" in written.out
    assert "global hooks" not in written.err
    assert not modules._has_any_global_hook()
    assert not modules._global_module_registration_hooks
    if hasattr(sys, "monitoring"):
        assert [sys.monitoring.get_tool(number) for number in (3, 4)] == [None, None]


def test_a_call_that_raises_ends_no_step(run: Run) -> None:
    body = """
    class Odd(torch.nn.Module):
        def forward(self, n):
            if n % 2: raise ValueError(n)
            return model(x)
    odd = Odd()
    for n in range(24):
        try: odd(n)
        except ValueError: pass
    """
    assert run(INFERS + body) == 0
    assert calls_of("aten::linear") == {8: 1, 9: 1}


def test_an_old_python_is_announced_before_the_script_begins(run: Run, capfd: Capture) -> None:
    assert run("print('begins', file=sys.stderr, flush=True)") == 3
    announced, *later = capfd.readouterr().err.splitlines()
    if hasattr(sys, "monitoring"):
        assert announced == "begins"
        return
    version = ".".join(map(str, sys.version_info[:2]))
    assert later[0] == "begins"
    assert announced == (
        "profiler-ext: eager line attribution needs Python 3.12 or newer, and this is "
        f"{version}: eager work is attributed to its ops"
    )
    assert run("print('begins', file=sys.stderr, flush=True)", "--no-lines") == 3
    assert capfd.readouterr().err.splitlines()[0] == "begins"


GENERATES = """
    class LM(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.head = torch.nn.Embedding(8, 4), torch.nn.Linear(4, 8)
        def forward(self, input_ids, attention_mask=None):
            return self.head(self.tokens(input_ids))
    lm, draft, prompt = LM(), LM(), torch.ones(3, 16, dtype=torch.int64)
    def generate(count):
        mask, ids = torch.ones_like(prompt), prompt
        for _ in range(count):
            ids = lm(input_ids=ids, attention_mask=mask)[:, -1:].argmax(-1)
            mask = torch.cat([mask, mask[:, :1]], 1)
"""


def kinds() -> dict[int | None, str]:
    return {
        number: own.kind.value
        for own in kinds_of_steps(out().analysis)
        for number, _ in own.last_calls
    }


def test_a_prefill_is_recorded_beside_the_tokens_after_it(run: Run, capfd: Capture) -> None:
    assert run(INFERS + GENERATES + "    for _ in range(3): generate(24)") == 0
    decode, prefill = kinds_of_steps(out().analysis)
    assert kinds() == dict(zip(steps(out()), ["prefill", "decode", "decode"], strict=True))
    assert (decode.batch, decode.length, prefill.length) == ((3, 3), (1, 1), (16, 16))
    assert decode.context is not None
    assert decode.context[0] > 16
    assert len(decode.unprofiled_ns) >= 3
    text = capfd.readouterr().out
    assert "decode: 2 steps, 3 x 1 tokens" in text
    assert "prefill: 1 step, 3 x 16 tokens" in text


def test_of_one_prompt_its_tokens_are_recorded(run: Run) -> None:
    assert run(INFERS + GENERATES + "    generate(24)") == 0
    assert list(kinds().values()) == ["decode", "decode"]


def test_a_draft_model_and_the_one_that_verifies_are_one_step(run: Run) -> None:
    body = """
    for sample in range(3):
        lm(prompt), draft(prompt)
        for _ in range(8):
            for _ in range(4): draft(prompt[:, :1])
            lm(prompt[:, :5])
    """
    assert run(INFERS + GENERATES + body) == 0
    found = kinds()
    assert sorted(found.values()) == ["prefill", "prefill", "speculative", "speculative"]
    (round_calls,) = {
        tuple(call.length for call in each.calls)
        for each in out().recording.settings.step_calls
        if found.get(each.step) == "speculative"
    }
    assert round_calls == (1, 1, 1, 1, 5)
