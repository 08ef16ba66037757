"""``python -m verification.replays.decoding``: step kinds and tokens a second of ``generate()``.

    python -m verification.replays.decoding [--only NAME ...] [--device cuda] [--again] [--out DIR]

Small Llamas of transformers with random weights: decoding with a dynamic and with a static cache,
which transformers compiles, and speculative decoding with a draft model. A streamer times the loop
by the program's own clock. Each program runs alone and under ``profiler-ext run``; the table has
the kinds that the session names, and its tokens a second beside those by the program's clock: of
the same process before the recording (*same*), and of the one that ran alone, which other work on
the host makes another one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

__all__ = ["figure_of", "own_rate", "table"]

NAMES = ("dynamic_cache", "static_cache", "speculative")
GENERATES = {"dynamic_cache": "decode", "static_cache": "decode", "speculative": "speculative"}
TIMEOUT_S = 590
FACTOR = 1.1
_SKIPPED = 40
_RECORDED, _TIMED = 8, 10
_LONG = 8
_CALLS = 4
_SETTLED = 2
"""The generations that warm up: caches are made, and code is compiled."""
Row = dict[str, Any]
Noted = list[list[tuple[float, int]]]
"""Of each generation, when tokens came, and how many."""
Steps = list[tuple[float, int]]
"""How long each took, and how many tokens came."""


class Clock:
    """A streamer that notes when tokens came, and how many."""

    def __init__(self) -> None:
        self.noted: list[tuple[float, int]] = []

    def put(self, tokens: Any) -> None:
        self.noted.append((time.perf_counter(), int(tokens.numel())))

    def end(self) -> None:
        """Nothing waits for it."""


def generate(name: str, device: str, out: Path | None) -> None:
    """Generate several times; write when tokens came."""
    import torch

    model, draft, prompt = _models(device)
    options: Row = {"max_new_tokens": 128 if device == "cuda" else 32, "do_sample": False}
    if name == "static_cache":
        options["cache_implementation"] = "static"
    if name == "speculative":
        options["assistant_model"] = draft
    noted = []
    for _ in range(_CALLS):
        clock = Clock()
        with torch.no_grad():
            model.generate(prompt, streamer=clock, **options)
        noted.append(clock.noted)
    if out is not None:
        out.write_text(json.dumps(noted))


def _models(device: str) -> tuple[Any, Any, Any]:
    """Return a model, its first layers as a draft, and a prompt."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    def llama(layers: int) -> Any:
        config = LlamaConfig(
            hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
            num_attention_heads=8, num_key_value_heads=4, vocab_size=1024,
            max_position_embeddings=512, eos_token_id=None, bos_token_id=1, pad_token_id=0,
        )  # fmt: skip
        return LlamaForCausalLM(config).eval().to(device)

    torch.manual_seed(0)
    width = 1024 if device == "cuda" else 64
    layers, drafting = (8, 2) if device == "cuda" else (2, 1)
    model, draft = llama(layers), llama(drafting)
    with torch.no_grad():  # later layers change little, so some of what is drafted is accepted
        for layer in model.model.layers[drafting:]:
            layer.mlp.down_proj.weight.mul_(0.3)
            layer.self_attn.o_proj.weight.mul_(0.3)
    draft.load_state_dict(model.state_dict(), strict=False)
    return model, draft, torch.randint(3, 1024, (1, 24), device=device)


def steps_of(noted: Noted) -> list[tuple[float, int]]:
    """Return how long each step took by the program's clock, and its tokens."""
    # What follows the prompt itself and what its prefill gave are the steps.
    return [(b[0] - a[0], b[1]) for own in noted for a, b in pairwise(own[1:])]


def before_recording(steps: Steps) -> Steps:
    """Return the last steps before the recording, whose end takes as long as many steps."""
    usual_s = median(ran_s for ran_s, _ in steps)
    ends = [at for at, (ran_s, _) in enumerate(steps) if ran_s > _LONG * usual_s]
    end = max(0, ends[-1] - _RECORDED) if ends else len(steps)
    return steps[max(0, end - _TIMED) : end]


def own_rate(steps: Steps) -> tuple[float, float]:
    """Return tokens a second of steps, and tokens a step."""
    tokens = fmean(tokens for _, tokens in steps)
    return tokens / median(ran_s for ran_s, _ in steps), tokens


def figure_of(session: Path) -> Row:
    """Return the kinds that a session names, and the tokens a second of the one that generates."""
    from profiler_ext.exporters.views.steps import kind_rows, kind_texts
    from profiler_ext.sessions.merging import load

    analysis = load(session).analyses[0]
    rows = kind_rows(analysis)
    return {
        "kinds": [each.steps.kind.value for each in rows],
        "rate": rows[0].tokens_per_s if rows else None,
        "tokens": rows[0].tokens if rows else None,
        "is_most": bool(rows and rows[0].is_most),
        "texts": kind_texts(analysis),
    }


def _run(name: str, device: str, out: Path) -> Row:
    own = ["-m", "verification.replays.decoding", "--device", device, "--serve", name]
    alone, same, session = out / f"{name}.alone.json", out / f"{name}.same.json", out / name
    recorded = ["-m", "profiler_ext", "run", "--force", "--skip", str(_SKIPPED), "--steps", "4"]
    commands = (
        [sys.executable, *own, "--noted", str(alone)],
        [sys.executable, *recorded, "-o", str(session), *own, "--noted", str(same)],
    )
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str((out / "cache").resolve())}
    if device == "cpu":
        environment["OMP_NUM_THREADS"] = "1"  # small models wait for one another's threads
    with (out / f"{name}.log").open("w") as log:
        for command in commands:
            try:
                subprocess.run(
                    command, stdout=log, stderr=log, env=environment, check=True, timeout=TIMEOUT_S
                )
            except (subprocess.SubprocessError, OSError) as error:
                return {"name": name, "failure": f"{type(error).__name__}: see {log.name}"}
    return _read(name, out)


def _read(name: str, out: Path) -> Row:
    alone, same = (json.loads((out / f"{name}.{e}.json").read_text()) for e in ("alone", "same"))
    own, own_tokens = own_rate(before_recording(steps_of(same)))
    figures = {"own_rate": own, "own_tokens": own_tokens, **figure_of(out / name)}
    return {"name": name, "alone_rate": own_rate(steps_of(alone[_SETTLED:]))[0], **figures}


def table(rows: list[Row]) -> str:
    """All programs in Markdown."""
    lines = [
        "| program | kinds | tokens/s said | own, same | said / same | own, alone | "
        "tokens a step, said | own |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *map(_line, rows),
        "",
        f"{sum(map(is_right, rows))} of {len(rows)} have the kind, and the rate within {FACTOR}.",
    ]
    return "\n".join(lines) + "\n"


def is_right(row: Row) -> bool:
    """Whether the kind and the rate are the program's own."""
    if "failure" in row or not row["rate"] or not row["kinds"]:
        return False
    is_kind = row["kinds"][0] == GENERATES[row["name"]]
    return bool(is_kind and 1 / FACTOR <= row["rate"] / row["own_rate"] <= FACTOR)


def _line(row: Row) -> str:
    if "failure" in row:
        return f"| {row['name']} | failed: {row['failure']} |"
    most = "at most " if row["is_most"] else ""
    cells = (
        row["name"],
        ", ".join(row["kinds"]),
        f"{most}{row['rate']:,.1f}" if row["rate"] else "not said",
        f"{row['own_rate']:,.1f}",
        f"{row['rate'] / row['own_rate']:.2f}" if row["rate"] else "",
        f"{row['alone_rate']:,.1f}",
        f"{most}{row['tokens']:.2f}" if row["tokens"] else "",
        f"{row['own_tokens']:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Run what is asked for; 1 where anything failed."""
    parser = argparse.ArgumentParser(prog="verification.replays.decoding", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=NAMES, choices=NAMES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--again", action="store_true", help="read what a run left in DIR")
    parser.add_argument("--out", type=Path, default=Path("out/decoding"))
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--noted", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        generate(options.serve, options.device, options.noted)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    rows = [
        _read(name, options.out) if options.again else _run(name, options.device, options.out)
        for name in options.only
    ]
    (options.out / "decoding.json").write_text(json.dumps(rows, indent=1))
    (options.out / "decoding.md").write_text(table(rows))
    print(table(rows))
    for row in rows:
        print(*row.get("texts", []), sep="\n")
    return 1 if any("failure" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
