"""One model on a GPU, its kernels looked into: by ``profiler-ext inside``, and by ncu."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from profiler_ext.cli.inside import run_child
from profiler_ext.errors import ProfilerExtError
from profiler_ext.exporters.views.inside import inside_of
from profiler_ext.inside.child import Result, Task
from profiler_ext.inside.line_table import LineTable, read_folder
from profiler_ext.inside.pc_sampling import SampledFunction
from profiler_ext.inside.sampled import SampledBinary, sampled_kernels
from profiler_ext.inside.sampling import SamplingResult, SamplingTask
from profiler_ext.inside.selection import ChosenKernel
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.inside import MeasuredKernel, MeasuredSite
from profiler_ext.records.provenance import CallSite
from profiler_ext.records.stored import known
from profiler_ext.sessions.session import Session, load
from verification.inside.models import WARM_UP
from verification.inside.running import TINY, Row, run_within

__all__ = ["by_model", "by_ncu"]

MODULE = "verification.inside.models"
MODEL_KERNELS, NCU_KERNELS = 100, 20
KNOCK_OUT_S = 150.0
MARKED = 4  # steps that ncu looks at: at a line, single launches may be some points apart
LAUNCHES = 80 * MARKED
PERIOD_LOG2 = 11  # cycles
_OFFSET_BYTES = 16  # of an instruction to the next
_GUARD = re.compile(r"^(?:\{\s*)?(?:@!?U?P\w+\s+)?")
_STALLS = {"long_sb": "long_scoreboard", "short_sb": "short_scoreboard"}
_STALL = re.compile(r"(?:stall_|smsp__pcsamp_warps_issue_stalled_)(?=\w+(?<!_not_issued)$)")
_ALL = "Warp Stall Sampling (All Samples)"
Samples = Mapping[int, Mapping[str, int]]  # by offset, then by reason


def by_model(name: str, options: Namespace) -> Row:
    """Measure all generated kernels of a model, with the user's command."""
    if options.tiny:
        return _ran_tiny(name)
    with tempfile.TemporaryDirectory(prefix="inside_") as made:
        folder = Path(made)
        command = [sys.executable, "-W", "ignore", "-m", "profiler_ext", "inside"]
        command += ["--route", "both" if options.knock_out else "samples"]
        command += ["--kernels", str(MODEL_KERNELS), "--limit", str(KNOCK_OUT_S), "-o", made]
        command += ["--", "-m", MODULE, name]
        error = run_within(command, os.environ, sys.stdout, options.seconds - 15)
        answer = None if error else inside_of(folder)
        if answer is None:
            raise RuntimeError(f"{error or 'it wrote no inside.json'}; {_printed(folder)}")
        kernels = list(kernel_rows(load(folder), answer.kernels))
        return {"device": answer.device, "notes": answer.notes, "kernels": kernels}


def _ran_tiny(name: str) -> Row:
    words = [sys.executable, "-W", "ignore", "-m", MODULE, name, "--tiny", "--steps", "2"]
    subprocess.run(words, check=True)
    return dict(TINY)


def _printed(folder: Path) -> str:
    """The end of what the script printed in its children."""
    logs = sorted(folder.glob("inside*.log"))
    return " ".join(each.read_text(errors="replace")[-300:] for each in logs)


def kernel_rows(session: Session, kernels: Iterable[MeasuredKernel]) -> Iterator[Row]:
    """Yield each kernel, with what its nodes take as measured and by the model."""
    analysis = session.analysis
    places = {(each.graph, each.node): each for each in analysis.places}
    for kernel in kernels:
        row: Row = {
            "kernel": kernel.kernel,
            "route": kernel.route.value,
            "step_ns": kernel.step_ns,
            "total_ns": kernel.total_ns,
            "reason": kernel.reason,
            "nodes": [],
        }
        for site in kernel.sites[:1]:
            graph = _graph_of(analysis, site, places)
            weights = _weights_of(analysis.recording.graphs[graph].call_sites[site.call_site])
            for node, time_ns in zip(site.nodes, site.times_ns, strict=True):
                modelled_ns = kernel.step_ns * weights.get(node, 0.0)
                place = places.get((graph, node), Place())
                row["nodes"].append(_node_row(node, place, time_ns, modelled_ns))
        yield row


def _graph_of(analysis: Analysis, site: MeasuredSite, places: Mapping[Any, Place]) -> int:
    """The graph of a measured site; of equal ones that which ran."""
    graphs = enumerate(analysis.recording.graphs)
    equal = [at for at, each in graphs if each.record.digest == site.graph]
    ran = (at for at in equal if any((at, node) in places for node in site.nodes))
    return next(ran, equal[0])


def _weights_of(site: CallSite) -> dict[str, float]:
    """The share of each node by the cost model."""
    whole = sum(site.weights)
    pairs = zip(site.nodes, site.weights, strict=True)
    return {node: weight / whole for node, weight in pairs} if whole else {}


def _node_row(node: str, place: Place, time_ns: int, modelled_ns: float) -> Row:
    return {
        "node": node,
        "op": place.aten_op,
        "file": Path(place.file).name if place.file else None,
        "line": place.line,
        "code": (place.code or "").strip()[:80],
        "measured_ns": time_ns,
        "modelled_ns": modelled_ns,
    }


class _Looked:
    """What a model's kernels are looked into with, until the time is over."""

    def __init__(self, name: str, folder: Path, until_s: float) -> None:
        self._name, self._folder, self._until_s = name, folder, until_s
        self._chosen: list[ChosenKernel] = []
        for each in ("inductor", "triton"):  # as the children have them
            (folder / each).mkdir()

    @property
    def chosen(self) -> Sequence[ChosenKernel]:
        """The longest kernels."""
        return self._chosen

    def _left_s(self) -> float:
        left_s = self._until_s - time.monotonic()
        if left_s < 10:
            raise TimeoutError("no time is left")
        return left_s

    def record(self) -> str:
        """Record the model, and choose its kernels; returns the device's name."""
        task = Task(
            words=[MODULE, self._name],
            is_module=True,
            query="",
            most=NCU_KERNELS,
            limit_s=0.0,
            knocks_out=False,
            step_on="",
            session=str(self._folder / "session"),
            result=str(self._folder / "result"),
        )
        log = self._folder / "record.log"
        path = run_child("profiler_ext.inside.child", task, self._folder, log, self._left_s())
        result = msgspec.json.decode(path.read_bytes(), type=known(Result))
        if result.error:
            raise RuntimeError(f"{result.error}; {log.read_text(errors='replace')[-300:]}")
        self._chosen = result.chosen
        return result.device

    def sampled(self, way: str, *words: str) -> list[MeasuredKernel]:
        """Sample the kernels in a run of the script."""
        folder = self._folder / way.replace(" ", "_")
        folder.mkdir()
        task = SamplingTask(
            words=[MODULE, self._name, *words],
            is_module=True,
            step_on="",
            kernels=self._chosen,
            binaries=str(self._folder / "triton"),
            result=str(folder / "result"),
        )
        log = folder / "log"
        path = run_child("profiler_ext.inside.sampling", task, self._folder, log, self._left_s())
        result = msgspec.json.decode(path.read_bytes(), type=known(SamplingResult))
        if result.error:
            raise RuntimeError(f"{result.error}; {log.read_text(errors='replace')[-300:]}")
        return result.kernels

    def by_ncu(self, way: str) -> list[MeasuredKernel]:
        """Let ncu sample the kernels in one step."""
        report = self._folder / f"{way.replace(' ', '_')}.ncu-rep"
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(self._folder / "inductor"),
            "TRITON_CACHE_DIR": str(self._folder / "triton"),
        }
        names = sorted({each.kernel for each in self._chosen})
        command = ncu_command(names, report)
        command += [sys.executable, "-W", "ignore", "-m", MODULE, self._name]
        command += ["--steps", str(WARM_UP + MARKED), "--marked", str(MARKED)]
        log = self._folder / "ncu.log"
        with log.open("w") as printed:
            error = run_within(command, environment, printed, self._left_s())
        if error or not report.exists():
            end = log.read_text(errors="replace")[-400:]
            raise RuntimeError(f"{error or 'ncu wrote no report'}: {end}")
        page = [ncu_tool() or "ncu", "--import", str(report), "--page", "source", "--csv"]
        done = subprocess.run(
            [*page, "--print-source", "sass"], capture_output=True, text=True, check=False,
            timeout=self._left_s(),
        )  # fmt: skip
        functions = list(functions_of(done.stdout.splitlines()))
        if not any(samples for *_, samples in functions):
            raise RuntimeError(
                f"no samples in ncu's page: {done.stdout[:3000]} {done.stderr[:200]}"
            )
        binaries = [*binaries_of(functions, self._folder / "triton")]
        return sampled_kernels(self._chosen, binaries)


def by_ncu(name: str, options: Namespace) -> Row:
    """Sample a model's kernels in the step, and as ncu does: each alone, on an empty cache.

    With the cache as it is the two are not alike: ncu runs a kernel several times, and restores
    what it wrote before each, into the cache.
    """
    if options.tiny:
        return _ran_tiny(name)
    if ncu_tool() is None:
        raise RuntimeError("ncu is not installed, or not on PATH")
    row: Row = {"problems": {}, "kernels": []}
    with tempfile.TemporaryDirectory(prefix="inside_", ignore_cleanup_errors=True) as made:
        looked = _Looked(name, Path(made), time.monotonic() + options.seconds - 20)
        row["device"] = looked.record()
        looks: dict[str, Callable[[str], list[MeasuredKernel]]] = {
            "cold": lambda way: looked.sampled(way, "--cold"),
            "ncu cold": looked.by_ncu,
            "step": looked.sampled,
        }
        ways: dict[str, list[MeasuredKernel]] = {}
        for way, look in looks.items():
            try:
                ways[way] = look(way)
            except (ProfilerExtError, RuntimeError, OSError, subprocess.SubprocessError) as error:
                row["problems"][way] = f"{type(error).__name__}: {error}"[:2500]
        row["kernels"] = [
            {
                "kernel": each.kernel,
                "step_ns": each.step_ns,
                "ways": {way: shares_of(found[at]) for way, found in ways.items()},
            }
            for at, each in enumerate(looked.chosen)
        ]
    return row


def shares_of(kernel: MeasuredKernel) -> Row:
    """The share of each of a kernel's lines, or why there are none."""
    shares: dict[str, float] = defaultdict(float)
    for part in kernel.parts:
        shares["+".join(part.nodes) or part.reason] += part.time_ns / kernel.step_ns
    return {"samples": kernel.samples, "reason": kernel.reason, "shares": dict(shares)}


def ncu_tool() -> str | None:
    """Where ncu is."""
    installed = sorted(Path("/opt/nvidia").glob("nsight-compute/*/ncu"))
    places = (*installed, Path("/usr/local/cuda/bin/ncu"))
    return shutil.which("ncu") or next((str(each) for each in places if each.is_file()), None)


def ncu_command(names: Iterable[str], report: Path) -> list[str]:
    """What has ncu sample kernels by these names between the program's marks."""
    wanted = "|".join(map(re.escape, names))
    return [
        ncu_tool() or "ncu",
        *("--section", "SourceCounters", "--warp-sampling-interval", str(PERIOD_LOG2 - 5)),
        *("--cache-control", "all", "--clock-control", "none"),
        *("--profile-from-start", "off", "--target-processes", "application-only"),
        *("--kernel-name-base", "function", "-k", f"regex:^({wanted})$"),
        *("--launch-count", str(LAUNCHES), "-f", "-o", str(report.with_suffix(""))),
    ]


_Function = tuple[str, tuple[str, ...], Samples]  # name, opcodes, samples


def functions_of(page: Iterable[str]) -> Iterator[_Function]:
    """Yield each launch of ncu's source page in CSV: a row of names, and one of each instruction.

    Only instructions of 128 bits that follow each other have the offset that samples have.
    """
    name, header = "", list[str]()
    rows = list[dict[str, str]]()
    for row in csv.reader(page):
        if row and row[0] == "Kernel Name":
            if rows:
                yield _function(name, rows)
            name, header, rows = row[1] if len(row) > 1 else "", [], []
        elif "Source" in row and not header:
            header = row
        elif header and len(row) == len(header):
            rows.append(dict(zip(header, row, strict=True)))
    if rows:
        yield _function(name, rows)


def _function(name: str, rows: Sequence[Mapping[str, str]]) -> _Function:
    columns = [each for each in rows[0] if _STALL.match(each)]
    at: dict[int, Counter[str]] = {}
    for number, row in enumerate(rows):
        counts = {_reason(column): _count(row[column]) for column in columns}
        if not any(counts.values()):
            counts = {"other": _count(row.get(_ALL, ""))}
        if any(counts.values()):
            at[number * _OFFSET_BYTES] = Counter(counts)
    bare = re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0].strip()
    return bare, tuple(map(_opcode, (row["Source"] for row in rows))), at


def _reason(column: str) -> str:
    reason = _STALL.sub("", column, count=1)
    return _STALLS.get(reason, reason)


def _count(cell: str) -> int:
    text = cell.replace(",", "").strip()
    return round(float(text)) if re.fullmatch(r"\d+(?:\.\d+)?", text) else 0


def _opcode(text: str) -> str:
    return _GUARD.sub("", text.strip()).partition(" ")[0].partition(".")[0].rstrip(";")


def binaries_of(functions: Sequence[_Function], triton: Path) -> Iterator[SampledBinary]:
    """Yield the samples of each function, with the line table of the binary of equal code."""
    together: dict[tuple[str, tuple[str, ...]], dict[int, Counter[str]]] = {}
    for name, opcodes, samples in functions:
        own = together.setdefault((name, opcodes), defaultdict(Counter))
        for offset, reasons in samples.items():
            own[offset].update(reasons)
    for (name, opcodes), at in together.items():
        table = _table(name, opcodes, triton)
        text = table.file.read_text() if table.file is not None and table.file.is_file() else ""
        yield SampledBinary(SampledFunction(name, 0, at), table, text)


def _table(name: str, opcodes: Sequence[str], triton: Path) -> LineTable:
    gap = "ncu's code is that of no binary in Triton's cache"
    for cubin in sorted(triton.rglob(f"{name}.cubin")):
        if not cubin.with_suffix(".ptx").is_file():  # for Inductor's own launcher
            continue
        table = read_folder(cubin.parent, name)
        if is_same_code(opcodes, table):
            return table
        gap = table.gap or gap
    return LineTable(name, 0, (), gap)


def is_same_code(opcodes: Sequence[str], table: LineTable) -> bool:
    """Tell whether ncu shows the code that a line table is of; fillings may be left out."""
    own = [each.opcode.partition(".")[0].rstrip(";") for each in table.instructions]
    needed = sum(not each.is_padding for each in table.instructions)
    count = min(len(own), len(opcodes))
    return needed > 0 and count >= needed and list(opcodes[:count]) == own[:count]
