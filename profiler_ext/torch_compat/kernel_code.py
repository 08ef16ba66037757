"""What Inductor does while it writes the code of a kernel: which FX node asks for what.

Source: ``torch/_inductor/ir.py``: a ``Loops`` holds a function that yields its value, and calls
those of the loops that it inlines. ``torch/_inductor/loop_body.py`` runs the outermost of them
once and keeps its steps as a graph, which ``torch/_inductor/codegen/triton.py`` runs to write the
lines.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch.fx

from profiler_ext.torch_compat import inductor
from profiler_ext.torch_compat.names import kernel_names

_NODE = "_profiler_ext_node"


def lowered_node() -> torch.fx.Node | None:
    """Return the FX node that is being lowered, if any."""
    node: torch.fx.Node | None = kernel_names.LOWERED_NODE.of(inductor.current_graph())
    return node


def is_lowering_inner_graph(interpreter: Any) -> bool:
    """Tell whether an interpreter lowers a graph that a template inlines."""
    return kernel_names.INNER_LOWERING.is_type_of(interpreter)


def mark_loops(loops: Any, node: torch.fx.Node, running: list[torch.fx.Node]) -> None:
    """Have the functions of a loop put its node on a stack while they run.

    The functions yield what they did: only who asks is noted.
    """
    if not kernel_names.LOOPS.is_type_of(loops):
        return
    for functions in kernel_names.LOOP_FUNCTIONS:
        if (given := functions.maybe(loops)) is not None:
            marked = tuple(_marked(function, node, running) for function in given)
            object.__setattr__(loops, functions.name, marked)  # the class is frozen
            return
    inner = _marked(kernel_names.LOOP_FUNCTION.of(loops), node, running)
    object.__setattr__(loops, kernel_names.LOOP_FUNCTION.name, inner)


def _marked(
    function: Callable[..., Any], node: torch.fx.Node, running: list[torch.fx.Node]
) -> Callable[..., Any]:
    @functools.wraps(function, updated=())
    def marked(*args: Any, **kwargs: Any) -> Any:
        running.append(node)
        try:
            return function(*args, **kwargs)
        finally:
            running.pop()

    vars(marked)[_NODE] = node
    return marked


def is_body_graph(graph: torch.fx.Graph) -> bool:
    """Tell whether a graph is the body of a loop."""
    return kernel_names.TRACER_OF.of(graph) is kernel_names.BODY_TRACER.kept()


def body_step() -> torch.fx.Node | None:
    """Return the step of a loop's body that runs, if any."""
    interpreter = kernel_names.V_INTERPRETER.of(kernel_names.V.get())
    step: torch.fx.Node | None = kernel_names.BODY_STEP.maybe(interpreter)
    return step


def current_kernel() -> Any:
    """Return the kernel whose code is written, ``None`` between kernels."""
    kernel = kernel_names.V_KERNEL.of(kernel_names.V.get())
    return None if kernel_names.KERNEL_ARGS.maybe(kernel) is None else kernel


def node_of_loops(kernel: Any) -> torch.fx.Node | None:
    """Return the FX node of the loop whose code a kernel is writing."""
    scheduled = kernel_names.KERNEL_NODE.of(kernel)
    data = None if scheduled is None else _loops_of(kernel_names.IR_NODE.of(scheduled))
    if data is None:
        return None
    functions = [each.maybe(data) for each in kernel_names.LOOP_FUNCTIONS]
    several = next((given for given in functions if given is not None), None)
    first = several[0] if several else kernel_names.LOOP_FUNCTION.of(data)
    node: torch.fx.Node | None = getattr(first, _NODE, None)
    return node


def _loops_of(buffer: Any) -> Any:
    data = kernel_names.BUFFER_DATA.maybe(buffer)
    return data if kernel_names.LOOPS.is_type_of(data) else None


def line_text(line: Any) -> str | None:
    """Return the text of a line as it is written, which may be deferred; ``None`` of a mark."""
    if isinstance(line, str):
        return line
    text: str | None = kernel_names.DEFERRED_TEXT.maybe(line)
    return text


def value_name(value: Any) -> str:
    """Return the variable that holds a value of a kernel."""
    return str(kernel_names.VALUE_NAME.of(value))


def parts_of(kernel: Any) -> tuple[Any, ...]:
    """Return the kernels that a kernel consists of: several of a combo, else itself."""
    parts = kernel_names.PARTS_OF_COMBO.maybe(kernel)
    return (kernel,) if parts is None else tuple(parts)


def is_template(kernel: Any) -> bool:
    """Tell whether a kernel is made of a template."""
    return kernel_names.TEMPLATE_KERNEL.is_type_of(kernel)


def buffers_of_arguments(kernel: Any) -> dict[str, tuple[str, ...]]:
    """Return the buffers that each argument of a kernel is, by its name."""
    args = kernel_names.KERNEL_ARGS.of(kernel)
    held: dict[str, tuple[str, ...]] = {}
    for given in (kernel_names.ARGS_IN.of(args), kernel_names.ARGS_OUT.of(args)):
        for buffer, name in given.items():
            if isinstance(name, str):  # not that of a buffer which was removed
                held[name] = (*held.get(name, ()), str(buffer))
    for shared in kernel_names.ARGS_IN_OUT.of(args).values():
        buffers = kernel_names.IN_OUT_BUFFERS.maybe(shared)
        if buffers is not None:
            held[str(kernel_names.IN_OUT_NAME.of(shared))] = tuple(map(str, buffers))
    return held


def buffer_nodes(graph: Any, name: str) -> frozenset[torch.fx.Node]:
    """Return the FX nodes that Inductor lists for a buffer; for an input its placeholder."""
    buffer = kernel_names.NAME_TO_BUFFER.of(graph).get(name)
    if buffer is not None:
        exact = kernel_names.GET_ORIGIN_NODE.of(buffer)()
        return frozenset({*kernel_names.ORIGINS.of(buffer), *([exact] if exact else ())})
    if name not in kernel_names.GRAPH_INPUTS.of(graph):
        return frozenset()
    fx_graph: torch.fx.Graph = kernel_names.FX_GRAPH.of(graph)
    return frozenset(node for node in fx_graph.find_nodes(op="placeholder") if node.target == name)


def graphs_around(graph: Any) -> Iterator[Any]:
    """Yield a graph and those that it is nested in, innermost first."""
    while graph is not None:
        yield graph
        graph = kernel_names.PARENT_GRAPH.maybe(graph)
