"""The line of each machine instruction of a Triton kernel, by a shadow line table.

A line table names the innermost function, such as Triton's ``sum``. In a copy of the kernel's PTX
each place is rewritten to the outermost frame of its chain, which stands in a comment, and the copy
is assembled as Triton did it. Where its code is equal to the real cubin's, its line table is the
real one's, with the kernel's own lines. Neither the compile nor its cache is touched.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from profiler_ext.errors import MissingExtraError, UsageError
from profiler_ext.records.kernel_lines import (
    InlinedFrame,
    Instruction,
    KernelLine,
    KernelLineEvidence,
    KernelSource,
    LinePart,
)
from profiler_ext.torch_compat.names import running_names

_FILE = re.compile(
    r'^\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"(?:\s+"((?:[^"\\]|\\.)*)")?', re.MULTILINE
)
_PLACE = re.compile(
    r"^(\s*\.loc\s+)(\d+)\s+(\d+)\s+(\d+)([^\n/]*)(?://\s*([^\n]*))?$", re.MULTILINE
)
_FRAME = re.compile(r"([^\s@\[\]:]+):(\d+):(\d+)")
_ENTRY = re.compile(r"^\s*\.visible \.entry (\S+?)\(", re.MULTILINE)
_SECTION = re.compile(r"^\s*\.section\s+([^,\s]+)")
_LINE = re.compile(r'//## File "([^"]+)", line (\d+)')
_CODE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?);")
_HIGH = re.compile(r"/\* 0x([0-9a-f]{16}) \*/")
_LABEL = re.compile(r"^(\.L_\w+):")
_GOAL = re.compile(r"^(?:@!?U?P\w+ )?BRA\b.*`\((\.L_\w+)\)")
_GUARD = re.compile(r"^(?:\{\s*)?(?:@!?U?P\w+\s+)?")
_SELF_BRANCH = re.compile(r"^BRA\b")


@dataclass(frozen=True, slots=True)
class LineTable:
    """The instructions of one kernel, each with its line, or why there are none."""

    kernel: str  # the name of its function
    head: int  # the line of the function's head in the file that was compiled
    instructions: tuple[Instruction, ...]
    gap: str | None = None  # why no instruction has a line of the kernel
    file: Path | None = None  # that was compiled

    def number_in(self, source: KernelSource, instruction: Instruction) -> int | None:
        """Return the number of an instruction's line in a source, from 1.

        The file that was compiled may begin with other empty lines than the source.
        """
        if instruction.line is None:
            return None
        begin = f"def {self.kernel}("
        heads = [at for at, line in enumerate(source.text.split("\n"), 1) if line.startswith(begin)]
        number = instruction.line - self.head + heads[0] if heads else 0
        return number if 0 < number <= len(source.lines) else None


@dataclass(frozen=True, slots=True)
class _Code:
    """One instruction as the disassembler prints it."""

    offset: int
    text: str
    file: str | None
    line: int | None
    high: int = 0  # the upper half of its 128 bits
    target: int | None = None  # of a branch

    @property
    def machine_code(self) -> tuple[int, str, int]:
        """What it is, apart from its line."""
        return self.offset, self.text, self.high


def read(ptx: str, cubin: bytes, metadata: Mapping[str, Any]) -> LineTable:
    """Return the lines of a compiled kernel's instructions.

    Args:
        ptx: its PTX, as Triton keeps it in its cache.
        cubin: its machine code, which runs.
        metadata: what Triton keeps of its compile, with the options for the assembler.

    Raises:
        MissingExtraError: Triton, or one of its tools, is not installed.
    """
    entry = _ENTRY.search(ptx)
    if entry is None:
        return LineTable("", 0, (), "its PTX has no entry")
    kernel = entry.group(1)
    files = {
        int(number): Path("/".join(filter(None, parts))) for number, *parts in _FILE.findall(ptx)
    }
    own, head = _head(ptx[entry.start() :]) or (0, 0)
    if own not in files:
        return LineTable(kernel, head, (), "its PTX has no line table")
    shadow, chains = _shadow(ptx, own, files[own].name)
    with tempfile.TemporaryDirectory() as folder:
        real = _disassembled(cubin, Path(folder), kernel)
        copy = _disassembled(_assembled(shadow, metadata), Path(folder), kernel)
    if not real:
        return LineTable(kernel, head, (), "its machine code has no function of its name")
    if [each.machine_code for each in real] != [each.machine_code for each in copy]:
        return LineTable(kernel, head, (), "its PTX assembles to other code than that which runs")
    frames = _Frames(files[own].name, {path.name: path for path in files.values()}, chains)
    lines = tuple(_instructions(copy, real, frames))
    return LineTable(kernel, head, lines, file=files[own])


def read_folder(folder: Path, kernel: str, root: Path | None = None) -> LineTable:
    """Return the same for a kernel in a folder of Triton's cache.

    Where the folder has the machine code alone, as Inductor writes it for its own launcher, the PTX
    of another folder below ``root`` serves, if it assembles to the same code.

    Raises:
        UsageError: The folder has no such kernel.
    """
    cubin = folder / f"{kernel}.cubin"
    sources = [folder]
    if root is not None and not (folder / f"{kernel}.ptx").is_file():
        sources = sorted(file.parent for file in root.rglob(f"{kernel}.ptx")) or sources
    tables = (_of_source(source, kernel, cubin) for source in sources)
    first = next(tables)
    return first if first.gap is None else next((each for each in tables if not each.gap), first)


def _of_source(folder: Path, kernel: str, cubin: Path) -> LineTable:
    files = {kind: folder / f"{kernel}.{kind}" for kind in ("ptx", "json")} | {"cubin": cubin}
    missing = [str(file) for file in files.values() if not file.is_file()]
    if missing:
        raise UsageError(f"there is no {missing[0]}; name a folder of Triton's cache")
    metadata = json.loads(files["json"].read_text())
    return read(files["ptx"].read_text(), files["cubin"].read_bytes(), metadata)


def part_of(instruction: Instruction, source: KernelSource, table: LineTable) -> KernelLine:
    """Return what an instruction of a kernel's table does, by the kernel's source."""
    if instruction.is_padding:
        return _PADDING
    number = table.number_in(source, instruction)
    return _WITHOUT_LINE if number is None else source.line(number)


_PADDING = KernelLine(LinePart.FRAME, KernelLineEvidence.FORM)
_WITHOUT_LINE = KernelLine(LinePart.GAP, KernelLineEvidence.NO_LINE)


def _head(code: str) -> tuple[int, int] | None:
    """The number of the kernel's file, and the line of its function's head there."""
    first = _PLACE.search(code)
    return None if first is None else (int(first.group(2)), int(first.group(3)))


_Place = tuple[str, int]  # name of a file, line
_Chain = tuple[_Place, ...]


def _shadow(ptx: str, own: int, name: str) -> tuple[str, dict[int, list[_Chain]]]:
    """Return the copy of a kernel's PTX, and the chains that its lines stand for."""
    chains: dict[int, list[_Chain]] = {}

    def outermost(place: re.Match[str]) -> str:
        begin, _, _, _, _, comment = place.groups()
        frames = [(file, int(line), column) for file, line, column in _FRAME.findall(comment or "")]
        if not frames or frames[-1][0] != name:
            return place.group()
        _, line, column = frames[-1]
        chain = tuple((file, inner) for file, inner, _ in frames)
        if chain not in chains.setdefault(line, []):
            chains[line].append(chain)
        return f"{begin}{own} {line} {column}"

    return _PLACE.sub(outermost, ptx), chains


def _assembled(ptx: str, metadata: Mapping[str, Any]) -> bytes:
    """Assemble PTX by Triton's own stage, with the options of a compile.

    Source: ``triton/backends/nvidia/compiler.py``, ``make_cubin``.
    """
    try:
        from triton.backends.compiler import GPUTarget
        from triton.compiler.compiler import make_backend
    except ImportError as error:
        raise MissingExtraError(
            "the lines of instructions need triton: pip install triton"
        ) from error
    target = metadata["target"]
    if isinstance(target, Mapping):
        target = GPUTarget(target["backend"], target["arch"], target["warp_size"])
    backend = make_backend(target)
    stages: dict[str, Any] = {}
    given: list[Any] = [stages, backend.parse_options(dict(metadata))]
    if "language" in inspect.signature(backend.add_stages).parameters:
        from triton.backends.compiler import Language

        given.append(Language.TRITON)
    backend.add_stages(*given)
    # Where a cache had all kernels, Inductor has not chosen the assembler yet
    running_names.USE_TORCHS_PTXAS.get()()
    with redirect_stdout(io.StringIO()):  # on errors it prints all of the PTX
        assembled: bytes = stages["cubin"](ptx, dict(metadata))
    return assembled


@functools.cache
def _disassembler() -> str:
    try:
        import triton
    except ImportError as error:
        raise MissingExtraError(
            "the lines of instructions need triton: pip install triton"
        ) from error
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    if not tool.is_file():
        raise MissingExtraError(f"triton came without {tool.name}; install triton of PyPI for CUDA")
    return str(tool)


def _disassembled(cubin: bytes, folder: Path, kernel: str) -> list[_Code]:
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    done = subprocess.run(
        [_disassembler(), "-g", "-c", "-hex", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UsageError(f"the kernel's machine code cannot be read: {done.stderr.strip()[:200]}")
    return list(_parsed(done.stdout, kernel))


def _parsed(text: str, kernel: str) -> Iterator[_Code]:
    """Yield the instructions of a kernel's own section."""
    is_inside, file, line = False, None, None
    codes: list[_Code] = []
    labels: dict[str, int] = {}  # by name, the index of the instruction that follows
    for row in text.split("\n"):
        if section := _SECTION.search(row):
            is_inside, file, line = section.group(1) == f".text.{kernel}", None, None
        elif not is_inside:
            continue
        elif place := _LINE.search(row):
            if "inlined at" not in row.partition(place.group())[0]:
                file, line = place.group(1), int(place.group(2))
        elif found := _CODE.search(row):
            codes.append(_Code(int(found.group(1), 16), found.group(2).strip(), file, line))
        elif codes and (half := _HIGH.fullmatch(row.strip())):
            codes[-1] = replace(codes[-1], high=int(half.group(1), 16))
        elif label := _LABEL.match(row):
            labels[label.group(1)] = len(codes)
    for code in codes:
        goal = _GOAL.search(code.text)
        at = labels.get(goal.group(1), len(codes)) if goal else len(codes)
        yield replace(code, target=codes[at].offset) if at < len(codes) else code


@dataclass(frozen=True, slots=True)
class _Frames:
    """The chains of inlined functions of a kernel, by the line that each begins at."""

    own: str  # name of the kernel's file
    files: Mapping[str, Path]
    chains: Mapping[int, list[_Chain]]

    def of(self, line: int, inner: _Code) -> tuple[InlinedFrame, ...]:
        """Return a line's chain, where the place in the real table decides which it is."""
        place = None if inner.file is None else (Path(inner.file).name, inner.line)
        fitting = [chain for chain in self.chains.get(line, []) if chain[0] == place]
        if len(fitting) != 1:
            return ()
        return tuple(InlinedFrame(file, at, self._function(file, at)) for file, at in fitting[0])

    def _function(self, file: str, line: int) -> str:
        path = self.files.get(file)
        return "" if path is None else _functions_of(path).get(line, "")


def _instructions(codes: list[_Code], real: list[_Code], frames: _Frames) -> Iterator[Instruction]:
    last = _last_of_code(codes)
    for at, (code, inner) in enumerate(zip(codes, real, strict=True)):
        opcode = _GUARD.sub("", code.text).partition(" ")[0]
        is_own = at <= last and code.file is not None and Path(code.file).name == frames.own
        line = code.line if is_own and code.line else None
        chain = () if line is None else frames.of(line, inner)
        yield Instruction(code.offset, opcode, line, chain, at > last, code.high, code.target)


def _last_of_code(codes: list[_Code]) -> int:
    """The index of the last instruction that may run: a branch to itself and fillings follow it."""
    at = len(codes) - 1
    while at >= 0 and _GUARD.sub("", codes[at].text).startswith("NOP"):
        at -= 1
    if at >= 0 and _SELF_BRANCH.match(_GUARD.sub("", codes[at].text)):
        at -= 1
    return at


@functools.cache
def _functions_of(file: Path) -> dict[int, str]:
    """The innermost function that each line of a Python file is of."""
    found: dict[int, str] = {}
    try:
        tree = ast.parse(file.read_text())
    except (OSError, SyntaxError, ValueError):  # the file is gone, or is not of Python
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found.update(dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), node.name))
    return found
