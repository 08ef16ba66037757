"""A trace recorded without us gets its lines from the store, or says why not."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import zipfile
from itertools import product
from pathlib import Path

import pytest

from profiler_ext.attaching import attach
from profiler_ext.attribution import attribute
from profiler_ext.attribution.package_calls import Launched, find_package_calls
from profiler_ext.cli import main
from profiler_ext.errors import StoreError
from profiler_ext.records.events import Device
from profiler_ext.records.lineage import Frame
from profiler_ext.records.provenance import Provenance
from profiler_ext.records.recording import Recording
from profiler_ext.sessions.session import Session, load
from profiler_ext.store import Store, packages, to_bytes, with_digest, work_digest
from tests.attribution.graphs import extern, graph, node, triton
from tests.attribution.reading import rows
from tests.attribution.timeline import Timeline

SOURCE = "import torch\n\n\ndef forward(x):\n    y = x * 3\n    return y @ y\n"
LINES = {5: "y = x * 3", 6: "return y @ y"}
DEVICE = "NVIDIA H200"


def record(dynamo_digest: str = "d1", **changes: int) -> Provenance:
    """Return the record of a graph: a product on line 5, two library calls on line 6."""
    at = {"mul": 5, "mm": 6, "mm_1": 6, **changes}
    frames = {
        name: Frame("<script>/model.py", line, "forward", LINES.get(line))
        for name, line in at.items()
    }
    nodes = [node(name, line, stack=(frames[name],)) for name, line in at.items()]
    sites = [triton("triton_poi", "mul"), extern("mm", "mm"), extern("mm", "mm_1")]
    made = graph(nodes, sites).provenance
    assert made is not None
    return with_digest(dataclasses.replace(made, dynamo_digest=dynamo_digest))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "model.py").write_text(SOURCE)
    kept = Store(tmp_path / "cache" / "profiler_ext")
    kept.put("fkey", "d1", to_bytes(record()))
    return kept


def plain(*keys: str, regions: tuple[str, ...] = ("0/0",)) -> Recording:
    """Return what torch.profiler alone records: replays of CUDA graphs, no operators."""
    timeline = Timeline()
    for key, region in product(keys, regions):
        with timeline.forward(key, region):
            timeline.replay("triton_poi", "k1", "k2", "k3")
    trace = dataclasses.replace(timeline.trace(), devices=(Device(0, DEVICE),))
    return Recording(trace)


def lines_of(recording: Recording) -> list[tuple[str | None, int | None, str | None, str | None]]:
    """Return file, line, evidence and gap of each share."""
    analysis = attribute(recording)
    places = [analysis.places[at] for at in analysis.shares.place]
    return [(p.file and Path(p.file).name, p.line, p.evidence, p.gap) for p in places]


ATTRIBUTED = ("model.py", 5, "stored_record_of_equal_graph", None)
OPEN = (None, None, None, "ambiguous_extern_run")


def test_a_root_that_is_a_link_to_itself_has_no_sources(store: Store, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)
    nowhere = attach(plain("fkey"), store, tmp_path / "nowhere").recording
    at_link = attach(plain("fkey"), store, link).recording
    assert at_link.gaps == nowhere.gaps
    assert lines_of(at_link) == lines_of(nowhere)


def test_a_graph_is_found_by_its_key_and_says_where_its_lines_come_from(
    store: Store, tmp_path: Path
) -> None:
    found = attach(plain("fkey"), store, tmp_path)
    assert (found.keys, found.unknown, found.missing) == (1, (), ())
    assert lines_of(found.recording) == [ATTRIBUTED, OPEN, OPEN, OPEN]
    assert found.recording.settings.user_roots == (str(tmp_path),)
    assert any("attached from the store" in note for note in attribute(found.recording).notes)


def test_the_region_of_a_graph_is_that_of_its_calls(store: Store, tmp_path: Path) -> None:
    for regions, expected in ((("!0/0",), "!0/0"), (("0/0", "1/0"), None)):
        (attached,) = attach(plain("fkey", regions=regions), store, tmp_path).recording.graphs
        assert attached.compile_id == expected


def test_what_a_run_learnt_of_library_calls_places_them(store: Store, tmp_path: Path) -> None:
    kernels = ((1, ("k1",)), (2, ("k2", "k3")))
    store.put_kernels(work_digest("fkey", record()), DEVICE, "a1", kernels)
    found = attach(plain("fkey"), store, tmp_path)
    assert rows(attribute(found.recording), "call_site", "evidence") == [
        (0, "replay_order"),
        (1, "order_and_kernels_of_another_run"),
        (2, "order_and_kernels_of_another_run"),
        (2, "order_and_kernels_of_another_run"),
    ]


def test_what_runs_saw_launched_by_other_choices_of_libraries_places_only_what_is_the_same(
    store: Store, tmp_path: Path
) -> None:
    digest = work_digest("fkey", record())
    store.put_kernels(digest, DEVICE, "a1", ((1, ("k1",)), (2, ("k2", "k3"))))
    store.put_kernels(digest, DEVICE, "b2", ((1, ("k1", "k2")), (2, ("k3",))))
    assert lines_of(attach(plain("fkey"), store, tmp_path).recording) == [
        ATTRIBUTED,
        OPEN,
        OPEN,
        OPEN,
    ]
    store.put_kernels(digest, DEVICE, "b2", ((1, ("k1",)),))
    unambiguous = attach(plain("fkey"), store, tmp_path).recording.graphs[0].stored_kernels
    assert unambiguous == ((1, ("k1",)), (2, ("k2", "k3")))


def test_a_line_that_does_not_stand_any_more_is_not_given(store: Store, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("# new\n" + SOURCE)
    found = attach(plain("fkey"), store, tmp_path)
    assert lines_of(found.recording)[0] == (
        None,
        None,
        "recorded_line_changed",
        "stale_source_line",
    )
    elsewhere = attach(plain("fkey"), store, tmp_path / "cache")
    assert elsewhere.missing == (str(tmp_path / "cache" / "model.py"),)


def test_two_records_of_one_key_that_differ_are_no_choice_to_make(
    store: Store, tmp_path: Path
) -> None:
    store.put("fkey", "d2", to_bytes(record("d2", mul=6)))
    found = attach(plain("fkey"), store, tmp_path)
    assert lines_of(found.recording) == [(None, None, None, "graph_ambiguous")] * 4


def test_what_the_store_cannot_give_is_named(store: Store, tmp_path: Path) -> None:
    store.put("fbad", "d1", b"PXPR")
    found = attach(plain("fkey", "fbad", "fnone"), store, tmp_path)
    assert (found.keys, found.unknown) == (3, ("fbad", "fnone"))
    assert [(gap.reason, gap.detail.split(":")[0]) for gap in found.recording.gaps] == [
        ("record_unreadable", "fbad.d1.pxpr")
    ]
    assert [gap for *_, gap in lines_of(found.recording)[4:]] == ["graph_not_captured"] * 8


def test_the_command_writes_a_session_without_torch(store: Store, tmp_path: Path) -> None:
    trace = Session(plain("fkey", "fnone")).export(tmp_path / "plain.json.gz")
    words = ["attach", trace, "-o", tmp_path / "out", "--root", tmp_path]
    words += ["--cache-dir", tmp_path / "cache"]
    code = "import sys; sys.modules['torch'] = None; from profiler_ext.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        check=False,
    )
    assert done.stderr.splitlines() == [
        f"profiler-ext: no record of graph fnone in {store.folder}",
    ]
    assert "model.py:5" in done.stdout
    again = load(tmp_path / "out")
    assert list(again.by_line().dropna(subset=["line"]).line) == [5]
    assert list(again.graphs().cache_state) == ["attached"]
    assert main(["attach", str(trace), "-o", str(tmp_path / "out")]) == 2


def packaged(tmp_path: Path, *sites: str) -> tuple[Path, str]:
    """Return a library of AOTInductor's with the record of a graph next to it, and its key."""
    nodes = [node(name, 5) for name in sites]
    made = graph(nodes, [triton(name, name) for name in sites]).provenance
    assert made is not None
    data = to_bytes(with_digest(made))
    library = tmp_path / f"{'_'.join(sites)}.so"
    library.write_bytes(b"\x7fELF")
    packages.write_record(library, data)
    return library, packages.package_key(data)


def ran(*kernels: str) -> Recording:
    """Return what a process without capture records of what a C++ wrapper launches."""
    timeline = Timeline()
    for kernel in kernels:
        timeline.launch(kernel)
    return Recording(timeline.trace())


def sites_of(recording: Recording, *libraries: Path) -> list[int | None]:
    """Return the call site of each launch once packages are attached."""
    store = Store(libraries[0].parent / "none")
    analysis = attribute(attach(recording, store, libraries[0].parent, libraries).recording)
    sites = rows(analysis, "call_site", "gap")
    assert {gap for site, gap in sites if site is None} <= {"aot_inductor"}
    return [site for site, _ in sites]


A, B, C = "triton_poi_a_0", "triton_poi_b_1", "triton_poi_c_2"


def test_calls_of_a_package_are_found_by_its_kernels_in_their_order(tmp_path: Path) -> None:
    library, _ = packaged(tmp_path, A, B)
    assert sites_of(ran(A, B, A, B), library) == [0, 1, 0, 1]
    assert sites_of(ran(B, A, B), library) == [None, 0, 1]
    assert sites_of(ran(B, A), library) == [None, None]


def test_a_package_whose_kernels_begin_as_they_end_is_found_in_whole_calls_only(
    tmp_path: Path,
) -> None:
    library, _ = packaged(tmp_path, A, B, A)
    assert sites_of(ran(A, B, A, A, B, A), library) == [0, 1, 2, 0, 1, 2]
    assert sites_of(ran(A, A, B, A, A, B), library) == [None] * 6


def test_what_several_packages_may_have_launched_is_no_call(tmp_path: Path) -> None:
    first, _ = packaged(tmp_path, A, B)
    second, _ = packaged(tmp_path, A, B, C)
    assert sites_of(ran(A, B, C), first, second) == [None] * 3
    assert sites_of(ran(A, B), first, second) == [0, 1]


def test_a_library_call_before_or_after_the_kernels_belongs_to_the_call() -> None:
    sites = [extern("mm", "mm"), triton(A, "a")]
    made = graph([node("mm", 5), node("a", 6)], sites).provenance
    assert made is not None
    launched = Launched(("gemm", A, "gemm", "gemm", A), (True, False, False, False, False))
    assert find_package_calls(launched, {"k": made}) == (("k", 1, 1), ("k", 2, 4))
    trails = dataclasses.replace(made, call_sites=made.call_sites[::-1])
    assert find_package_calls(launched, {"k": trails}) == (("k", 1, 3), ("k", 4, 4))
    both = dataclasses.replace(made, call_sites=(*made.call_sites, sites[0]))
    assert find_package_calls(launched, {"k": both}) == (("k", 1, 1), ("k", 4, 4))


def test_the_record_in_a_package_is_read_and_a_package_without_one_refused(tmp_path: Path) -> None:
    data, package = to_bytes(record()), tmp_path / "m.pt2"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("m/data/aotinductor/model/x.wrapper.so.pxpr", data)
        archive.writestr("m/data/aotinductor/other/x.wrapper.so", b"")
    assert packages.package_records(package) == {"model": data}
    with zipfile.ZipFile(tmp_path / "plain.pt2", "w") as archive:
        archive.writestr("m/data/aotinductor/model/x.wrapper.so", b"")
    for unusable in (tmp_path / "plain.pt2", tmp_path / "absent.pt2"):
        with pytest.raises(StoreError, match="record"):
            attach(ran(A), Store(tmp_path), tmp_path, [unusable])
