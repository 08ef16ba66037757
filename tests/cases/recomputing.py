"""The cases of activation checkpointing."""

from __future__ import annotations

import functools

import torch
from torch.utils import checkpoint as checkpoints

from tests.cases import Case
from tests.cases.models import GPT, tokens, training


class Checkpointed(GPT):
    def around(self, block, x):
        return checkpoints.checkpoint(block, x, use_reentrant=False)


def checkpoint(device):
    model = Checkpointed().to(device)
    phases = ("forward", "backward", "recompute")
    return Case(training(model, *tokens(device)), phases=phases)


def _save_matmuls(context, op, *args, **kwargs):
    policy = checkpoints.CheckpointPolicy
    is_matmul = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return policy.MUST_SAVE if is_matmul else policy.PREFER_RECOMPUTE


class Selective(GPT):
    def around(self, block, x):
        contexts = functools.partial(
            checkpoints.create_selective_checkpoint_contexts, _save_matmuls
        )
        return checkpoints.checkpoint(block, x, use_reentrant=False, context_fn=contexts)


def selective_checkpoint(device):
    model = Selective().to(device)
    phases = ("forward", "backward", "recompute")
    return Case(training(model, *tokens(device)), phases=phases)


CASES = (
    checkpoint,
    selective_checkpoint,
)
