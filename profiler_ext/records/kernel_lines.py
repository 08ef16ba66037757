"""The records of the inside of a kernel: what each line of its source computes, by FX node.

Of a kernel that Inductor generated, and of its machine instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext.records.vocabulary import Term


class LinePart(Term, page="words.md", title="part of a kernel", columns=()):
    """What a line of a kernel's source, or one of its instructions, does."""

    NODE = ("node", "an op", "computes, loads or stores the value of an op")
    INDEX = ("index", "index arithmetic", "computes where in memory an element lies")
    MASK = ("mask", "masks", "computes which elements lie within the bounds")
    REDUCTION = (
        "reduction",
        "frame of the reduction",
        "is of the loop of a reduction, or of what its partial values pass through",
    )
    TEMPLATE = (
        "template",
        "body of the template",
        "is of the text of a template, which computes one op: its tiles, loops and indices",
    )
    PROGRAM = ("program", "the program's own kernel", "was written by the program")
    FRAME = (
        "frame",
        "frame of the launch",
        "is of the frame of the kernel: its arguments, its sizes, which block it is",
    )
    GAP = ("gap", "unattributed", "is unattributed, and its evidence says why", "see its evidence")


class KernelLineEvidence(Term, page="words.md", title="line of a kernel", columns=()):
    """The rule by which the part of a line is known, or why it is not."""

    CONFIRMED = (
        "emitted_and_confirmed",
        "written for the node, whose op confirms it",
        "was written while Inductor generated the node's code, and holds what its op needs",
    )
    EMITTED = (
        "emitted",
        "written for the node",
        "was written while Inductor generated the node's code; its op names nothing to check",
    )
    FORM = (
        "form_of_line",
        "its form",
        "has a form that Inductor writes for nothing else",
    )
    OWN = (
        "whole_kernel",
        "all of the kernel is one op's",
        "is of a kernel, or of a part of one, whose text computes one op",
    )
    CONTRADICTED = (
        "contradicted",
        "its op contradicts it",
        "was written while the code of one op was generated, but holds what that op does not need",
        "please report the kernel",
    )
    NOT_SEEN = (
        "not_seen",
        "written by nothing that was seen",
        "was written by none of the places that are observed, and has no known form",
        "please report the kernel",
    )
    NO_LINE = (
        "no_line",
        "no line in the line table",
        "is an instruction to which the assembler gave no line of the kernel",
        "nothing can be done; it is counted by itself",
    )


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One line of a kernel's source: what it does, and for which nodes."""

    part: LinePart
    evidence: KernelLineEvidence
    # Names of the FX nodes of the graph that it is of, as in ``FxNode.name``; several where one
    # line holds equal values of several
    nodes: tuple[str, ...] = ()
    detail: str = ""  # of a gap: what contradicts


@dataclass(frozen=True, slots=True)
class KernelSource:
    """The source of one launch of a generated kernel, line by line.

    Of a nested graph that is called several times there is one for each call: the names of its
    nodes begin with the call's.
    """

    module: str | None  # path of the generated module, as in ``GraphInstance.output_module``
    kernel: str  # Inductor's name of it
    # The buffers that it writes, as in ``CallSite.writes``: equal kernels of one graph have one
    # name, and compute other nodes at each of their call sites
    writes: tuple[str, ...]
    text: str  # as Triton compiles it, so that a line table's numbers are those of its lines
    lines: tuple[KernelLine, ...]  # one for each line of ``text.split("\n")``

    @property
    def gaps(self) -> tuple[tuple[int, KernelLine], ...]:
        """The unattributed lines, each with its number, from 1."""
        numbered = enumerate(self.lines, start=1)
        return tuple((at, line) for at, line in numbered if line.part is LinePart.GAP)

    def line(self, number: int) -> KernelLine:
        """Return the line with a number from 1, as line tables count."""
        return self.lines[number - 1]


@dataclass(frozen=True, slots=True)
class InlinedFrame:
    """One frame of the chain of inlined functions that an instruction is of."""

    file: str
    line: int
    function: str = ""  # of Triton's, ``sum``; empty for the kernel's own


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction of a kernel, and the line of the kernel's source that it is of."""

    offset: int  # bytes from the begin of the function, as PC samples have it
    opcode: str  # ``LDG.E.128``, without operands
    line: int | None  # in the kernel's source, from 1; ``None`` where the table has none
    chain: tuple[
        InlinedFrame, ...
    ] = ()  # inlined functions, innermost first; the kernel's own last
    is_padding: bool = False  # it stands after the end of the code, and never runs
    high: int = 0  # the upper 64 bits of its code, which hold what it waits for
    target: int | None = None  # of a branch, the offset that it goes to
