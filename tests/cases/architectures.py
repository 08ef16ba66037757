"""The cases of whole models, and of the loops that train them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.cases import FULL, Case
from tests.cases.models import CNN, GPT, MLP, tokens, training


def repeated_layers(device):
    model = GPT(layers=12).to(device)
    return Case(training(model, *tokens(device)))


def cnn(device):
    model = CNN().to(device)
    images, labels = torch.randn(8, 3, 32, 32, device=device), torch.arange(8, device=device)
    return Case(training(model, images, labels))


def channels_last(device):
    model = CNN().to(device, memory_format=torch.channels_last)
    images = torch.randn(8, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
    return Case(training(model, images, torch.arange(8, device=device)))


def bert(device):
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=256,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    model = BertForMaskedLM(config).to(device)
    ids, _ = tokens(device)
    compiled = torch.compile(model)
    return Case(training(model, compiled=lambda: compiled(input_ids=ids, labels=ids).loss))


def llama(device):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = LlamaForCausalLM(config).to(device)
    ids, _ = tokens(device)
    compiled = torch.compile(model)
    return Case(training(model, compiled=lambda: compiled(input_ids=ids, labels=ids).loss))


def autocast(device):
    model = GPT().to(device)
    return Case(training(model, *tokens(device), enabled=True))


def tied_weights(device):
    model = GPT().to(device)
    model.head.weight = model.token.weight
    return Case(training(model, *tokens(device)))


def micro_batches(device):
    model = GPT().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    compiled, batch = torch.compile(model), tokens(device)

    def step():
        for _ in range(2):
            (compiled(*batch) / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return Case(step, phases=(*FULL, "gradient_accumulation"))


def eager_loss(device):
    model = MLP(64).to(device)
    compiled = torch.compile(model)
    x = torch.randn(32, 64, device=device)
    return Case(training(model, x, compiled=lambda x: F.mse_loss(compiled(x), x)))


CASES = (
    repeated_layers,
    cnn,
    channels_last,
    bert,
    llama,
    autocast,
    tied_weights,
    micro_batches,
    eager_loss,
)
