"""The cases of our own section: records that contradict each other, or that run in circles."""

from __future__ import annotations

import copy
from collections.abc import Callable

from verification.hostile.making import EVENTS, OURS, Case, Json, Maker, changed, first

Change = Callable[[Json], None]


def _on_graph(change: Change, name: str = "one_graph") -> Case:
    return Case(changed(lambda whole: change(whole[OURS]["graphs"][0]), name))


def _on_record(change: Change) -> Case:
    return _on_graph(lambda graph: change(graph["provenance"]))


def _on_nodes(change: Change) -> Case:
    def both(graph: Json) -> None:
        for nodes in (graph["nodes"], graph["provenance"]["nodes"]):
            change(nodes)

    return _on_graph(both)


def _on_site(**values: Json) -> Case:
    return _on_record(lambda record: record["call_sites"][0].update(values))


def _each_node(**values: Json) -> Case:
    return _on_nodes(lambda nodes: [node.update(values) for node in nodes])


def _each_frame(**values: Json) -> Case:
    return _on_nodes(
        lambda nodes: [frame.update(values) for node in nodes for frame in node["stack"]]
    )


def _settings(**values: Json) -> Case:
    return Case(changed(lambda whole: whole[OURS]["settings"].update(values)))


def _chain(nodes: Json) -> None:
    for at, node in enumerate(nodes):
        node["inputs"] = node["replaced"] = [nodes[(at + 1) % len(nodes)]["name"]]


def _all_graphs(change: Callable[[int, Json], None], name: str) -> Case:
    def each(whole: Json) -> None:
        for at, graph in enumerate(whole[OURS]["graphs"]):
            change(at, graph)

    return Case(changed(each, name))


def _doubled(whole: Json) -> None:
    whole[OURS]["graphs"] += copy.deepcopy(whole[OURS]["graphs"])


def _many_graphs(whole: Json) -> None:
    graph = whole[OURS]["graphs"][0]
    whole[OURS]["graphs"] = [graph | {"index": at} for at in range(300)]


def _no_events(whole: Json) -> None:
    whole[EVENTS] = []


def _marked(name: str) -> Maker:
    def mark(whole: Json) -> None:
        first(whole, "user_annotation")["name"] = name

    return changed(mark)


def _cut(key: str) -> Change:
    return lambda record: record.update({key: record[key][:3]})


CASES = {
    "no graphs": Case(changed(lambda whole: whole[OURS].update(graphs=[]))),
    "graphs without events": Case(changed(_no_events)),
    "an index that is not the place": _on_graph(lambda graph: graph.update(index=7)),
    "a negative index": _on_graph(lambda graph: graph.update(index=-1)),
    "a huge index": _on_graph(lambda graph: graph.update(index=2**62)),
    "all graphs twice": Case(changed(_doubled)),
    "300 times one graph": Case(changed(_many_graphs)),
    "a graph cut from itself": _on_graph(lambda graph: graph.update(parent_graph=0)),
    "a graph cut from one that is not there": _on_graph(
        lambda graph: graph.update(parent_graph=99)
    ),
    "graphs cut from each other": _all_graphs(
        lambda at, graph: graph.update(parent_graph=at ^ 1), "nested_region"
    ),
    "every graph of one compile": _all_graphs(
        lambda at, graph: graph.update(compile_id="0/0", key=None), "compiled_autograd"
    ),
    "every graph a backward": _all_graphs(
        lambda at, graph: graph.update(is_backward=True), "micro_batches"
    ),
    "every graph without record": _all_graphs(
        lambda at, graph: graph.update(provenance=None, nodes=[]), "micro_batches"
    ),
    "every graph with the nodes of none": _all_graphs(
        lambda at, graph: graph.update(nodes=[]), "micro_batches"
    ),
    "a compile id that is odd": _on_graph(lambda graph: graph.update(compile_id="!!/\n/0")),
    "a key that is a path": _on_graph(lambda graph: graph.update(key="../../../etc/passwd")),
    "compile time below zero": _on_graph(lambda graph: graph.update(compile_ns=-(2**62))),
    "a compile time over 64 bits": _on_graph(lambda graph: graph.update(compile_ns=2**63)),
    "fewer nodes than the record": _on_graph(_cut("nodes")),
    "fewer evidences than nodes": _on_graph(_cut("line_evidence")),
    "more evidences than nodes": _on_graph(lambda g: g["line_evidence"].extend(["absent"] * 9)),
    "an evidence that is none": _on_graph(lambda g: g.update(line_evidence=["sure"] * 20)),
    "evidences that are no list": _on_graph(lambda g: g.update(line_evidence={"absent": 1})),
    "an evidence of a node that is none": _on_nodes(
        lambda nodes: [n.update(evidence="sure") for n in nodes]
    ),
    "a cache state that is none": _on_graph(lambda graph: graph.update(cache_state="warm")),
    "kernels of sites that are not there": _on_graph(
        lambda graph: graph.update(library_kernels=[[99, ["k"]], [-1, []]])
    ),
    "kernels of no name": _on_graph(lambda graph: graph.update(library_kernels=[[0, ["", ""]]])),
    "100,000 kernels of a site": _on_graph(
        lambda graph: graph.update(library_kernels=[[0, ["k"] * 100_000]], stored_kernels=[])
    ),
    "kernels of three": _on_graph(lambda graph: graph.update(library_kernels=[[0, ["k"], 2]])),
    "marks of graphs that are not there": Case(_marked("profiler_ext: graph 99 module 99")),
    "marks of huge numbers": Case(_marked("profiler_ext: graph " + "9" * 5000)),
    "a mark that says all twice": Case(_marked("profiler_ext: graph 0 graph 0 module 0")),
    "inputs copied that are not there": _on_graph(
        lambda graph: graph.update(copied_inputs=[["nobody"]], other_copied_inputs=[[["no"]]]),
        "cudagraphs",
    ),
    "two nodes of one name": _on_nodes(lambda nodes: [n.update(name="mm") for n in nodes]),
    "a node without name": _on_nodes(lambda nodes: [n.update(name="") for n in nodes]),
    "nodes in a circle": _on_nodes(_chain),
    "a node that reads itself": _on_nodes(
        lambda nodes: [n.update(inputs=[n["name"]]) for n in nodes]
    ),
    "nodes of targets that are odd": _each_node(target="\ud800", original_aten="::..::"),
    "sequence numbers over 64 bits": _each_node(seq_nr=2**63),
    "sequence numbers below zero": _each_node(seq_nr=-(2**63)),
    "tags that are odd": _each_node(partitioner_tag="sideways", recompute="never"),
    "forward nodes that are not there": _each_node(forward_node="nobody", forward_evidence="sure"),
    "annotations that are odd": _each_node(annotation=[["", ""], ["\ud800", "\n"]]),
    "sizes of expressions": _each_node(
        outputs=[{"dtype": "float32", "size": ["9**9**9"], "stride": ["s0"], "device": "cuda"}]
    ),
    "sizes that are huge": _each_node(
        outputs=[{"dtype": "x", "size": [2**62] * 9, "stride": [-1], "device": "cuda:x"}]
    ),
    "stacks of nothing": _each_node(stack=[]),
    "a stack of 20,000 frames": _on_nodes(
        lambda nodes: nodes[0].update(stack=nodes[0]["stack"][:1] * 20_000)
    ),
    "20,000 modules of a node": _on_nodes(
        lambda nodes: nodes[0].update(
            modules=[
                {"path": ".".join("m" * (n % 40 + 1)), "class_name": "M"} for n in range(20_000)
            ]
        )
    ),
    "a module path of 5,000 names": _each_node(
        modules=[{"path": ".".join(["m"] * 5000), "class_name": "M"}]
    ),
    "lines below zero": _each_frame(line=-7),
    "lines over 64 bits": _each_frame(line=2**63),
    "huge lines": _each_frame(line=2**62),
    "files of no name": _each_frame(file=""),
    "files of NULs": _each_frame(file="/a\0b"),
    "files with a surrogate": _each_frame(file="/src/\ud800.py", code="\ud800", function="\ud800"),
    "files of line ends": _each_frame(file="/src/a\nb.py"),
    "files that are folders": _each_frame(file="/"),
    "files that never end": _each_frame(file="/dev/zero"),
    "files that are too long": _each_frame(file="/src/" + "x" * 5000),
    "files through links above": _each_frame(file="/src/../../../../proc/self/environ"),
    "an ordinal that is not the place": _on_site(ordinal=5),
    "an ordinal below zero": _on_site(ordinal=-1),
    "an ordinal over 64 bits": _on_site(ordinal=2**63),
    "a path that is odd": _on_site(path="\ud800/\n"),
    "a kind that is none": _on_site(kind="magic"),
    "nodes of a site that are not there": _on_site(nodes=["nobody"], weights=[1]),
    "a node of a site twice": _on_site(nodes=["mm", "mm"], weights=[1, 1]),
    "fewer weights than nodes": _on_site(nodes=["mm", "sub"], weights=[1]),
    "more weights than nodes": _on_site(nodes=["mm"], weights=[1, 2, 3]),
    "weights of zero": _on_site(weights=[0]),
    "weights below zero": _on_site(weights=[-5]),
    "weights that cancel out": _on_site(nodes=["mm", "sub"], weights=[5, -5]),
    "weights over 64 bits": _on_site(weights=[2**63]),
    "huge weights": _on_site(nodes=["mm", "sub"], weights=[2**62, 2**62]),
    "fewer values than buffers": _on_site(writes=["buf0", "buf1"], values=["mm"]),
    "values of no node": _on_site(writes=["buf0", "buf1"], values=["nobody", ""]),
    "an expression that never ends": _on_site(bytes_moved="9**9**9**9", flops="2**2**2**2**2**9"),
    "an expression that runs": _on_site(bytes_moved="__import__('os').abort()", flops="exit()"),
    "an expression of 200,000 brackets": _on_site(bytes_moved="(" * 200_000, flops="-" * 200_000),
    "an expression of a symbol": _on_site(bytes_moved="s0*4", flops="s77/0"),
    "an expression of nothing": _on_site(bytes_moved="", flops="\0"),
    "an expression without end": _on_site(bytes_moved="inf", flops="nan"),
    "an expression below zero": _on_site(bytes_moved="-5", flops="1e400"),
    "digits without end": _on_site(bytes_moved="9" * 100_000, flops="٣"),
    "a site nested in itself": _on_site(within=[{"call": "0", "part": "body"}] * 5),
    "a site nested in none": _on_site(within=[{"call": "", "part": "\ud800"}], path="3/1/4"),
    "a site nested 20,000 deep": _on_site(
        within=[{"call": str(n), "part": "body"} for n in range(20_000)]
    ),
    "no call sites": _on_record(lambda record: record.update(call_sites=[])),
    "the same call site 5,000 times": _on_record(
        lambda record: record.update(call_sites=record["call_sites"][:1] * 5000)
    ),
    "stacks of Dynamo out of range": _on_record(
        lambda record: record.update(dynamo_stacks=[999, -7], dynamo_modules=[999])
    ),
    "a rank below zero": _settings(rank=-1),
    "a rank over 64 bits": _settings(rank=2**63),
    "a huge rank": _settings(rank=2**62, world_size=-1),
    "a world of nobody": _settings(world_size=0),
    "a step source that is odd": _settings(step_source="\ud800\n"),
    "a step below zero before the recording": _settings(unprofiled_steps_ns=[5, -1]),
    "endless steps before the recording": _settings(unprofiled_steps_ns=[2**63]),
    "a command of odd text": _settings(command=["\ud800", "\0", "\n", "x" * 100_000]),
    "roots that are odd": _settings(user_roots=["", "/", ".", "\0", "\ud800"], library_roots=[""]),
    "a torch version that is odd": _settings(torch_version="\ud800"),
    "modules called that are none": _settings(
        called_modules=[[0, {"path": "", "class_name": ""}], [0, {"path": "a", "class_name": "b"}]]
    ),
    "gaps of odd reasons": Case(
        changed(
            lambda whole: whole[OURS].update(gaps=[{"reason": "\ud800", "detail": "\x1b[31m"}] * 50)
        )
    ),
}
