"""A Hugging Face Llama built from a config with random weights; nothing is downloaded.

profiler-ext run examples/llama.py        (needs: pip install transformers)
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def main(steps: int = 8) -> None:
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    device, dtype = ("cuda", torch.bfloat16) if on_gpu else ("cpu", torch.float32)
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=512 if on_gpu else 64,
        intermediate_size=1408 if on_gpu else 176,
        num_hidden_layers=4 if on_gpu else 2,
        num_attention_heads=8 if on_gpu else 4,
        num_key_value_heads=4 if on_gpu else 2,
    )
    model = LlamaForCausalLM(config).to(device, dtype)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(config.vocab_size, (4, 512 if on_gpu else 32), device=device)
    for _ in range(steps):
        loss = compiled(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
