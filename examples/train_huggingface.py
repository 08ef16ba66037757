"""A Hugging Face Trainer on a tiny model with random weights, profiled by a callback.

python examples/train_huggingface.py
"""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from profiler_ext.integrations.huggingface import ProfilerCallback


def main(folder: str = "profile_out", steps: int = 8) -> None:
    torch.manual_seed(0)
    words = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(**words, **heads))
    tokens = torch.randint(64, (4 * steps, 16))
    data = [{"input_ids": each, "labels": each} for each in tokens]
    arguments = TrainingArguments(
        output_dir=f"{folder}/checkpoints",
        max_steps=steps,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,  # two batches are one step
        torch_compile="--compile" in sys.argv,
        save_strategy="no",
        report_to="none",
    )
    callback = ProfilerCallback(folder, skip=5, steps=2)
    Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()
    print(callback.profile.session.report("module"))


if __name__ == "__main__":
    main(*sys.argv[1:2])
