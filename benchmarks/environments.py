"""The peers' environments: one for each below ``.venv-peers``, made by uv.

Run: ``python -m benchmarks.environments``; once, with ``uv`` (``pip install uv``) and a package
index. TraceLens is not on PyPI (what is called so there is something else): it comes from GitHub,
or from where ``$TRACELENS`` says. XProf is left out: it reads ``xplane.pb``, no trace of torch's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.recordings import ROOT

FOLDER = ROOT / ".venv-peers"
_TRACELENS = "git+https://github.com/AMD-AGI/TraceLens@171dd74721ca1ec45709e5805b68ae1f65e27811"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another tool that reads such recordings.

    Attributes:
        name: what it is called.
        script: asks it; a module of ``benchmarks.peers``.
        package: its distribution.
        source: what is installed.
    """

    name: str
    script: str
    package: str
    source: str

    @property
    def python(self) -> Path:
        """The interpreter that has it."""
        return FOLDER / self.script / "bin" / "python"

    @property
    def version(self) -> str:
        """Which of its versions is there."""
        asked = f"import importlib.metadata as m; print(m.version({self.package!r}))"
        done = subprocess.run(
            [str(self.python), "-c", asked], check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout.strip()


PEERS = (
    Peer(
        "HolisticTraceAnalysis", "holistic", "HolisticTraceAnalysis", "HolisticTraceAnalysis==0.5.0"
    ),
    Peer("torch-tb-profiler", "torch_tb", "torch-tb-profiler", "torch-tb-profiler==0.4.3"),
    Peer(
        "TraceLens",
        "tracelens",
        "TraceLens",
        os.environ.get("TRACELENS") or f"TraceLens @ {_TRACELENS}",
    ),
)


def ready() -> list[Peer]:
    """Return the peers whose environments are there, and say which are not."""
    for peer in PEERS:
        if not _stamp(peer).exists():
            print(f"{peer.name} is not here: python -m benchmarks.environments", file=sys.stderr)
    return [peer for peer in PEERS if _stamp(peer).exists()]


def make(peer: Peer) -> None:
    """Make a peer's environment, where it is not there yet.

    Args:
        peer: the peer.

    Raises:
        SystemExit: uv could not: it has said why.
    """
    stamp = _stamp(peer)
    if stamp.exists() and json.loads(stamp.read_text()) == peer.source:
        return
    print(f"{peer.name}: making {stamp.parent}", flush=True)
    uv = [sys.executable, "-m", "uv", "--quiet"]
    _run([*uv, "venv", "--clear", "--python", sys.executable, str(stamp.parent)])
    _run([*uv, "pip", "install", "--compile-bytecode", "--python", str(peer.python), peer.source])
    stamp.write_text(json.dumps(peer.source))


def _stamp(peer: Peer) -> Path:
    return FOLDER / peer.script / "made.json"


def _run(command: list[str]) -> None:
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(f"failed: {' '.join(command)}")


def main() -> None:
    """Make those that are missing."""
    for peer in PEERS:
        make(peer)


if __name__ == "__main__":
    main()
