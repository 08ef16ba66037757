"""The steps of the trial of findings whose loss is eager beside a model that is compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from benchmarks.cases import Case, Pair, Sizes, training
from benchmarks.models import GPT
from benchmarks.steps import Step

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def cross_entropy(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return the loss of a language model, in float32."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())


def distillation(logits: torch.Tensor, teachers: torch.Tensor) -> torch.Tensor:
    """Return how far a student's capped logits are from its teacher's, at a temperature."""
    own = 30 * torch.tanh(logits.float() / 30)
    student = functional.log_softmax(own / 2, dim=-1)
    return functional.kl_div(student, (teachers.float() / 2).softmax(-1), reduction="batchmean")


def smoothed(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return a loss with smoothed labels, and a part that keeps the logits small."""
    rows = logits.flatten(0, 1).float()
    own = functional.cross_entropy(rows, ids.flatten(), label_smoothing=0.1)
    return own + 1e-4 * rows.logsumexp(-1).square().mean()


class Trained(nn.Module):
    """A model and its loss as one."""

    def __init__(self, model: Callable[..., torch.Tensor], loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        return self.loss(self.model(ids), wanted)


def eager_loss(
    sizes: Sizes, loss: Loss, *, batch: int = 32, layers: int = 6, mode: str | None = None
) -> Pair:
    """The model is compiled and the loss is not; both as one."""
    batch, words, width = (2 if sizes.is_tiny else batch), 50304, max(sizes.width, 64)
    ids = torch.randint(words, (batch, sizes.tokens), device=sizes.device)
    wanted = ids
    if loss is distillation:
        wanted = torch.randn(batch, sizes.tokens, words, device=sizes.device).bfloat16()

    def made(is_whole: bool) -> Step:
        model = GPT(width, min(layers, sizes.layers)).to(sizes.device, torch.bfloat16)
        whole = Trained(model if is_whole else torch.compile(model), loss)
        run = torch.compile(whole, mode=mode) if is_whole else whole
        return training(model, forward=lambda: run(ids, wanted))

    return Pair(made(is_whole=False), made(is_whole=True))


RULE = "eager_beside_compiled"
EAGER = (
    Case(RULE, "GPT, its cross entropy eager; compiled", partial(eager_loss, loss=cross_entropy)),
    Case(RULE, "GPT, labels smoothed eagerly; compiled", partial(eager_loss, loss=smoothed)),
    Case(
        RULE,
        "GPT, 16 x 512 tokens, twice the layers, its cross entropy eager; compiled",
        partial(eager_loss, loss=cross_entropy, batch=16, layers=12),
    ),
    Case(
        RULE, "GPT, a distillation's loss eager; compiled", partial(eager_loss, loss=distillation)
    ),
)
