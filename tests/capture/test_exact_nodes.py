"""What a kernel computes is told from what it reads."""

from profiler_ext.capture.graphs.call_sites import exact_nodes

# a -> b -> c -> e, and d -> e: what each node reads.
EDGES = {"a": (), "b": ("a",), "c": ("b",), "d": (), "e": ("c", "d"), "f": ("e",)}


def exact(origins: str, written: str | None, read: str) -> str:
    found = exact_nodes(set(origins), written, set(read), EDGES.__getitem__)
    return "".join(sorted(found))


def test_a_node_behind_a_value_that_is_read_is_not_computed() -> None:
    assert exact("abce", written="e", read="b") == "ce"


def test_a_node_that_another_path_recomputes_is_computed() -> None:
    assert exact("abcde", written="e", read="") == "abcde"


def test_a_node_after_the_written_value_is_not_computed() -> None:
    assert exact("cef", written="c", read="b") == "c"


def test_a_node_in_the_slice_that_inductor_does_not_list_is_not_computed() -> None:
    assert exact("ce", written="e", read="") == "ce"


def test_reading_an_unrelated_value_takes_nothing_away() -> None:
    assert exact("abce", written="e", read="f") == "abce"


def test_the_second_stage_of_a_split_reduction_is_the_reduction_alone() -> None:
    assert exact("bce", written="e", read="e") == "e"


def test_without_the_written_node_all_that_inductor_lists_is_kept() -> None:
    assert exact("abc", written=None, read="b") == "abc"


def test_a_copy_of_a_value_that_is_read_computes_only_the_copy() -> None:
    assert exact("ef", written="f", read="e") == "f"


def test_what_fills_a_buffer_for_a_later_writer_is_computed_though_the_writer_alone_is_listed() -> (
    None
):
    assert exact("e", written="d", read="") == "d"
