"""seq_table gives torch's own numbers, whatever was traced before."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pandas import DataFrame

import profiler_ext
from profiler_ext import cli
from profiler_ext.errors import UsageError
from tests.compiling import torch

# What torch's test_aot_sequence_nr expects of this model; of the functions that torch names in
# two columns, a node's own and its forward's, one is always empty.
EXPECTED = """\
0|aten.convolution.default|conv2d
0|aten.add.Tensor|add_
1|aten._native_batch_norm_legit_functional.default|batch_norm
2|aten.relu.default|relu
2|aten.detach.default|relu
3|aten.add.Tensor|add
4|aten.view.default|flatten
5|aten.view.default|linear
6|aten.t.default|linear
7|aten.addmm.default|linear
8|aten.view.default|linear
9|aten.sub.Tensor|l1_loss
10|aten.abs.default|l1_loss
11|aten.mean.default|l1_loss
11|aten.ones_like.default|l1_loss
11|aten.expand.default|l1_loss
11|aten.div.Scalar|l1_loss
10|aten.sgn.default|l1_loss
10|aten.mul.Tensor|l1_loss
8|aten.view.default|linear
7|aten.t.default|linear
7|aten.mm.default|linear
7|aten.t.default|linear
7|aten.mm.default|linear
7|aten.t.default|linear
7|aten.sum.dim_IntList|linear
7|aten.view.default|linear
6|aten.t.default|linear
5|aten.view.default|linear
4|aten.view.default|flatten
2|aten.detach.default|relu
2|aten.threshold_backward.default|relu
1|aten.native_batch_norm_backward.default|batch_norm
0|aten.convolution_backward.default|conv2d
11|aten.add.Tensor|
"""


class Reference(torch.nn.Module):
    """The model of torch's test_aot_sequence_nr, on smaller inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(16, 16, kernel_size=(1, 1), padding="same")
        self.bn1 = torch.nn.BatchNorm2d(16)
        self.relu1 = torch.nn.ReLU()
        self.fc1 = torch.nn.Linear(2 * 16 * 4 * 4, 1)
        self.loss_fn = torch.nn.L1Loss()

    def forward(self, x: Any, target: Any) -> Any:
        y = x
        x = self.conv1(x)
        x = self.bn1(x)
        x = self.relu1(x)
        x = x + y
        x = torch.flatten(x)
        x = self.fc1(x)
        return (self.loss_fn(x, target),)


FORWARD_LINE = Reference.forward.__code__.co_firstlineno
LINES = {name: FORWARD_LINE + at for at, name in enumerate(["conv", "bn", "relu", "add"], 2)}


class Small(torch.nn.Module):
    """Another model, to have been traced before."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.fc(x).relu().sum()


def inputs() -> tuple[Any, Any]:
    return torch.rand(2, 16, 4, 4, requires_grad=True), torch.rand(1)


def reference_table() -> DataFrame:
    return profiler_ext.seq_table(Reference().train(), inputs())


def small_table() -> DataFrame:
    return profiler_ext.seq_table(Small(), torch.rand(2, 4))


def text(table: DataFrame) -> str:
    rows = table[["SeqNr", "OrigAten", "SrcFn"]].astype("string").fillna("")
    return "".join("|".join(row) + "\n" for row in rows.itertuples(index=False))


def train_eagerly() -> None:
    for _ in range(3):
        Small()(torch.rand(2, 4)).backward()


def compile_another() -> None:
    torch.compile(Small(), backend="aot_eager")(torch.rand(2, 4)).backward()


def leave_metadata_behind() -> None:
    left = {"seq_nr": 5, "in_grad_fn": 1, "grad_fn_seq_nr": [77], "stack_trace": "left over"}
    torch.fx.traceback.current_meta.update(left)


def nothing() -> None:
    """Nothing was traced before."""


def test_the_table_of_torchs_own_test_comes_out_number_by_number() -> None:
    # From torch 2.15 the result of a linear is made by another op, at the same place.
    found = text(reference_table()).replace("8|aten._unsafe_view", "8|aten.view")
    assert found == EXPECTED


@pytest.mark.parametrize(
    "earlier",
    [train_eagerly, compile_another, leave_metadata_behind, small_table, reference_table],
)
def test_numbers_do_not_depend_on_what_came_before(
    earlier: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.fx.traceback, "current_meta", {})
    expected = reference_table(), small_table()
    earlier()
    again = reference_table(), small_table()
    assert [table.to_csv() for table in again] == [table.to_csv() for table in expected]


def test_two_models_give_the_same_numbers_in_both_orders() -> None:
    reference_first = [reference_table().to_csv(), small_table().to_csv()]
    small_first = [small_table().to_csv(), reference_table().to_csv()]
    assert small_first == reference_first[::-1]


def test_each_backward_op_leads_to_its_forward_its_module_and_its_line() -> None:
    table = reference_table().set_index("node")
    found = {
        node: tuple(table.loc[node, ["forward_node", "module", "line", "phase"]])
        for node in ("threshold_backward", "native_batch_norm_backward", "convolution_backward")
    }
    assert found == {
        "threshold_backward": ("relu", "relu1", LINES["relu"], "backward"),
        "native_batch_norm_backward": (
            "_native_batch_norm_legit_functional",
            "bn1",
            LINES["bn"],
            "backward",
        ),
        "convolution_backward": ("convolution", "conv1", LINES["conv"], "backward"),
    }


def test_a_gradient_sum_leads_to_no_forward_op() -> None:
    last = reference_table().iloc[-1]
    assert last["phase"] == "gradient_accumulation"
    assert last[["forward_node", "SrcFn", "module"]].isna().all()


def test_tracing_changes_nothing_of_the_model() -> None:
    model = Reference().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    profiler_ext.seq_table(model, inputs())
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_while_capture_is_on_the_table_is_the_same() -> None:
    model = Small()
    before = profiler_ext.seq_table(model, torch.rand(2, 4))
    profiler_ext.enable()
    try:
        assert profiler_ext.seq_table(model, torch.rand(2, 4)).equals(before)
    finally:
        profiler_ext.disable()


def test_a_model_can_be_traced_more_often_than_dynamo_recompiles() -> None:
    model = Small()
    tables = [profiler_ext.seq_table(model, torch.rand(2, 4)) for _ in range(10)]
    assert {table.to_csv() for table in tables} == {tables[0].to_csv()}


def test_inputs_can_be_named_and_a_compiled_model_is_the_model() -> None:
    expected = small_table().to_csv()
    assert profiler_ext.seq_table(Small(), {"x": torch.rand(2, 4)}).to_csv() == expected
    compiled = torch.compile(Small())
    assert profiler_ext.seq_table(compiled, (torch.rand(2, 4),)).to_csv() == expected


def test_of_several_outputs_the_scalar_with_a_gradient_is_the_loss() -> None:
    def model(x: Any) -> dict[str, Any]:
        logits = x.sin()
        return {"logits": logits, "seen": logits.detach().sum(), "loss": logits.sum()}

    nodes = profiler_ext.seq_table(model, torch.rand(3, requires_grad=True))
    backward = nodes[nodes["phase"] == "backward"]
    assert backward["SrcFn"].tolist() == ["sum_2", "sum_2", "sin", "sin"]


def no_loss(x: Any) -> Any:
    return x * 2


def two_losses(x: Any) -> Any:
    return x.sum(), x.mean()


def breaks_the_graph(x: Any) -> Any:
    torch._dynamo.graph_break()
    return x.sum()


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (no_loss, r"returns 0 scalars that require a gradient, expected one"),
        (two_losses, r"returns 2 scalars that require a gradient, expected one"),
        (breaks_the_graph, r"cannot be traced as one graph \(Unsupported: .*\); give"),
    ],
)
def test_a_model_without_one_loss_or_one_graph_is_refused(model: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, on its way to the error
        profiler_ext.seq_table(model, torch.rand(3, requires_grad=True))


EXAMPLE = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return x.sin().sum()

def example():
    return Net(), torch.rand(3, requires_grad=True)

def model_only():
    return Net()
"""


def test_the_command_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(EXAMPLE)
    assert cli.main(["seq-table", f"{tmp_path}/net.py:example"]) == 0
    assert capsys.readouterr().out == (
        "SeqNr  OrigAten                SrcFn  phase     module  line  forward_node  node\n"
        "0      aten.sin.default        sin    forward           6                   sin\n"
        "1      aten.sum.default        sum_1  forward           6                   sum_1\n"
        "1      aten.ones_like.default  sum_1  backward                sum_1         ones_like\n"
        "1      aten.expand.default     sum_1  backward          6     sum_1         expand\n"
        "0      aten.cos.default        sin    backward          6     sin           cos\n"
        "0      aten.mul.Tensor         sin    backward          6     sin           mul\n"
    )


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("net.py:nothing", "net.py:nothing is not a function; name one as FILE.py:FUNCTION"),
        ("net.py", "net.py is not a function; name one as FILE.py:FUNCTION"),
        ("net.py:model_only", "net.py:model_only returned Net, expected (model, inputs)"),
        ("other.py:example", "other.py cannot be loaded"),
        ("no.such.module:example", "no.such.module cannot be loaded"),
    ],
)
def test_the_command_refuses_what_gives_no_model(
    target: str,
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "net.py").write_text(EXAMPLE)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["seq-table", target]) == 2
    assert capsys.readouterr().err.startswith(f"profiler-ext: [usage] {sentence}")
