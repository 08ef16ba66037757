"""What remedies patch, on functions called here: arguments that change, and those that stay."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from profiler_ext.trials import BY_NAME, memory_remedies
from profiler_ext.trials.remedy import Patching


def compile_with(names: list[str], **given):
    """Return what ``torch.compile`` is called with after remedies, and how often each patched."""

    def compile(
        model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None
    ):
        called.append((dynamic, mode, options))
        return model

    called: list[tuple[object, ...]] = []
    fake = SimpleNamespace(compile=compile)
    patchings = [Patching(fake) for _ in names]
    for name, patching in zip(names, patchings, strict=True):
        BY_NAME[name].apply(patching)
    fake.compile(**{"model": len, **given})
    return called[0], [each.count for each in patchings]


COMBO = {"combo_kernels": True}
GRAPHS = {"triton.cudagraphs": True}
TUNED = {"max_autotune": True, **GRAPHS, "coordinate_descent_tuning": True}


@pytest.mark.parametrize(
    ("names", "given", "called"),
    [
        (["compile_reduce_overhead"], {}, (None, None, GRAPHS)),
        (["compile_max_autotune"], {"mode": "default"}, (None, None, TUNED)),
        (["combo_kernels"], {"mode": "reduce-overhead"}, (None, None, {**GRAPHS, **COMBO})),
        (["combo_kernels"], {"options": GRAPHS}, (None, None, {**GRAPHS, **COMBO})),
        (["compile_dynamic"], {"mode": "max-autotune"}, (True, "max-autotune", None)),
        (["combo_kernels", "compile_reduce_overhead"], {}, (None, None, {**GRAPHS, **COMBO})),
    ],
)  # fmt: skip
def test_options_of_compile_are_added_to_those_of_its_mode(names, given, called):
    assert compile_with(names, **given) == (called, [1] * len(names))


@pytest.mark.parametrize(
    ("name", "given", "called"),
    [
        ("compile_reduce_overhead", {"mode": "reduce-overhead"}, (None, "reduce-overhead", None)),
        ("compile_reduce_overhead", {"mode": "max-autotune"}, (None, "max-autotune", None)),
        ("combo_kernels", {"backend": "eager"}, (None, None, None)),
        ("compile_dynamic", {"dynamic": True}, (True, None, None)),
        ("compile_dynamic", {"model": None}, (None, None, None)),
    ],
)
def test_what_compiles_so_already_or_with_another_backend_is_left_alone(name, given, called):
    assert compile_with([name], **given) == (called, [0])


def test_a_causal_mask_becomes_is_causal_and_another_stays(monkeypatch):
    original = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", original)  # put back afterwards
    patching = Patching(torch)
    BY_NAME["sdpa_is_causal"].apply(patching)
    query, key, value = torch.randn(3, 1, 2, 4, 8).unbind()
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    added = torch.zeros(4, 4).masked_fill(~causal, float("-inf"))
    window = causal & torch.ones(4, 4, dtype=torch.bool).triu(-1)
    for mask, count in ((causal, 1), (added, 2), (window[:3], 2), (None, 2)):
        rows = query[:, :, : 3 if mask is not None and len(mask) == 3 else 4]
        new = F.scaled_dot_product_attention(rows, key, value, attn_mask=mask)
        torch.testing.assert_close(new, original(rows, key, value, attn_mask=mask), equal_nan=True)
        assert patching.count == count


def test_a_call_that_does_not_fit_raises_as_before():
    fake = SimpleNamespace(compile=lambda model=None: model)
    BY_NAME["compile_dynamic"].apply(Patching(fake))
    with pytest.raises(TypeError, match="unexpected keyword argument 'mood'"):
        fake.compile(len, mood="good")


def test_notes_have_the_place_of_the_call_in_the_users_file():
    fake = SimpleNamespace(compile=lambda model=None, backend="inductor", dynamic=None: model)
    patching = Patching(fake)
    BY_NAME["compile_dynamic"].apply(patching)
    fake.compile(len)
    (site,) = patching.sites
    assert (site.file, site.end_line - site.line) == (__file__, 0)
    assert (site.column, site.end_column) == (4, 21)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)) for _ in range(3)
        )
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_each_block_of_a_list_is_checkpointed_and_not_what_is_in_it(monkeypatch):
    monkeypatch.setattr(torch, "compile", torch.compile)
    patching = Patching(torch)
    BY_NAME["checkpoint_blocks"].apply(patching)
    model, plain = Model(), Model()
    plain.load_state_dict(model.state_dict())
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        result = model(torch.ones(1, 4))
    assert patching.count == 3
    assert all("forward" in vars(block) for block in model.blocks)
    assert not any("forward" in vars(inner) for block in model.blocks for inner in block)
    expected = plain(torch.ones(1, 4))
    assert torch.equal(result, expected)
    result.sum().backward()
    expected.sum().backward()
    own = zip(model.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(a.grad, b.grad) for a, b in own)


def test_an_optimizer_that_is_not_fused_takes_one_parameter_at_a_time(monkeypatch):
    for name in memory_remedies._FOREACH:
        owner = getattr(torch.optim, name)
        monkeypatch.setattr(owner, "__init__", owner.__init__)
    patching = Patching(torch)
    BY_NAME["single_tensor_optimizer"].apply(patching)
    weights = [torch.nn.Parameter(torch.ones(2))]
    assert torch.optim.AdamW(weights).defaults["foreach"] is False
    assert torch.optim.SGD(weights, foreach=False).defaults["foreach"] is False
    assert patching.count == 1


def test_segments_grow_by_the_environment_unless_it_says_so(monkeypatch):
    monkeypatch.setattr(Patching, "has_gpu", True)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    first, second = Patching(torch), Patching(torch)
    BY_NAME["expandable_segments"].apply(first)
    setting = os.environ["PYTORCH_CUDA_ALLOC_CONF"]
    assert setting == "max_split_size_mb:64,expandable_segments:True"
    BY_NAME["expandable_segments"].apply(second)
    assert (first.count, second.count) == (1, 0)
    assert "already" in second.reason
