"""The judge is right about launches made by hand, and what is absent is stood in for."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.compiling import fresh_torch
from verification.serving import absent, engines
from verification.serving.judging import Launch, Place, judged, marked_lines, table, truths
from verification.serving.toy import ORDER, Llama

__all__ = ["fresh_torch"]


def right(order: tuple[int, ...] = ORDER) -> list[Launch]:
    """A step in which each launch has a place of its truth."""
    names = {True: "extern_kernels.mm", False: "cpp_fused_add_mm_0"}
    return [
        Launch(names[is_product], 10, ((min(allowed), 1.0),))
        for allowed, is_product in truths(order)
    ]


def test_a_step_with_the_places_of_the_truth_is_wholly_right() -> None:
    row = judged([right(), right()])
    assert (row["launches"], row["line"], row["layer"], row["wrong"]) == (66, 1.0, 1.0, 0)
    assert row["gaps"] == {}


def test_layers_in_the_order_that_they_are_held_in_are_wrong() -> None:
    row = judged([right(tuple(range(4)))])
    assert row["line"] == 1.0
    assert row["layer"] < 0.2
    assert row["wrong"] > 20


def test_another_line_a_module_unknown_and_time_without_a_line_are_each_counted() -> None:
    step = right()
    step[1] = step[1]._replace(places=((Place("gated", "layers.2.attention.qkv"), 1.0),))
    step[3] = step[3]._replace(places=((Place("out", None), 1.0),))
    step[5] = step[5]._replace(places=((None, 1.0),), gap="no_source_line")
    row = judged([step])
    assert row["wrong"] == 1
    assert row["for_example"] == ["extern_kernels.mm: gated in layers.2.attention.qkv"]
    assert row["line"] == pytest.approx(31 / 33)
    assert row["layer"] == pytest.approx(30 / 33)
    assert row["gaps"] == pytest.approx({"module unknown": 1 / 33, "no_source_line": 1 / 33})


def test_without_events_of_products_each_generated_kernel_has_a_place() -> None:
    kernels = [each for each in right() if each.kernel.startswith("cpp_")]
    assert judged([kernels])["layer"] == 1.0
    assert judged([[*kernels[1:], kernels[0]]])["layer"] < 0.2
    with pytest.raises(ValueError, match="longer"):
        judged([kernels[1:]])


def test_products_alone_each_have_a_place() -> None:
    products = [each for each in right() if not each.kernel.startswith("cpp_")]
    assert judged([products])["layer"] == 1.0
    with pytest.raises(ValueError, match="longer"):
        judged([products[1:]])


def test_steps_that_lack_products_or_launches_are_refused() -> None:
    with pytest.raises(ValueError, match="fewer matrix products"):
        judged([right()[:20]])
    with pytest.raises(ValueError, match="no step has a launch"):
        judged([])


def test_a_step_with_products_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="more matrix products"):
        judged([[*right(), Launch("aten::mm", 1, ())]])


def test_the_toy_has_each_marked_line_of_the_truth() -> None:
    known = {place.mark for allowed, _ in truths() for place in allowed}
    assert known == set(marked_lines().values())


def test_the_toy_depends_on_the_order_of_its_layers() -> None:
    torch.manual_seed(0)
    model, ids = Llama(), torch.arange(5)
    other = Llama(range(4))
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert not torch.allclose(model(ids, ids), other(ids, ids), atol=1e-3)


def test_the_table_has_what_failed() -> None:
    row = {"name": "a", "versions": "v", **judged([right()])}
    rows = [row, {"name": "b", "failure": "not\ndone"}]
    assert table(rows).splitlines()[2:] == [
        "| a | v | 33 | 100.0% | 100.0% | 0 |  |",
        "| b | | failed: not done | | | | |",
    ]


@pytest.mark.parametrize(
    ("message", "operator"),
    [
        ("'_OpNamespace' '_C' object has no attribute 'rms_norm'", "_C::rms_norm"),
        ("operator _C::scaled_fp4_quant.out does not exist", "_C::scaled_fp4_quant.out"),
        ("The underlying op of '_C.quant' has no overload name 'out'", "_C::quant.out"),
        ("no module named x", None),
    ],
)
def test_a_missing_operator_is_read_from_the_error(message: str, operator: str | None) -> None:
    assert absent.missing_operator(message) == operator


@dataclass
class Engine:
    """The sources of a small engine."""

    folder: Path

    def write(self, **modules: str) -> None:
        package = self.folder / "profiler_ext_engine"
        package.mkdir()
        for name, text in modules.items():
            (package / f"{name}.py").write_text(text)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.syspath_prepend(tmp_path)
    for name in [each for each in sys.modules if each.startswith("profiler_ext_engine")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    return Engine(tmp_path)


def test_packages_and_operators_that_an_import_fails_for_are_stood_in_for(engine: Engine) -> None:
    engine.write(
        __init__="raise ImportError('what the init imports is not needed')",
        ops=(
            "import torch\n"
            "from torch.library import register_fake\n"
            "@register_fake('profiler_ext_C::quant.out')\n"
            "def quant(x: torch.Tensor, y: torch.Tensor) -> None: ...\n"
            "norm = torch.ops.profiler_ext_C.norm.default\n"
        ),
        main=(
            "from profiler_ext_absent.layers import Base, jit\n"
            "from profiler_ext_engine import ops\n"
            "class Layer(Base[int], total=False): ...\n"
            "kernel = jit(lambda: 1)\n"
            "try: import profiler_ext_optional\n"
            "except ImportError: profiler_ext_optional = None\n"
        ),
    )
    absent.skip_init("profiler_ext_engine")
    found = absent.load("profiler_ext_engine.main")
    assert found[0] == "profiler_ext_absent"
    assert set(found[1:]) == {"profiler_ext_C::quant.out", "profiler_ext_C::norm"}
    assert sys.modules["profiler_ext_engine.main"].profiler_ext_optional is None
    assert str(torch.ops.profiler_ext_C.quant.out._schema) == (
        "profiler_ext_C::quant.out(Tensor(a0!) x, Tensor(a1!) y) -> ()"
    )
    assert all(map(absent.is_defined, found[1:]))


def test_operators_that_sources_name_are_defined(engine: Engine) -> None:
    engine.write(__init__="", passes="target = lambda: torch.ops._profiler_ext_C.rotary.default")
    absent.load("profiler_ext_engine")
    assert absent.define_named_in("profiler_ext_engine") == ("_profiler_ext_C::rotary",)
    assert absent.define_named_in("profiler_ext_engine") == ()


@pytest.mark.parametrize("name", ["vllm", "sglang"])
@pytest.mark.whole
@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.filterwarnings("ignore")
def test_an_engine_that_is_installed_compiles_the_toy(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed")
    ran = engines.ENGINES[name]("cpu", tmp_path, "cold")
    assert torch.allclose(ran.step(), ran.expected, atol=1e-4)
