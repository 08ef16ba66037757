"""Of layers that are alike one stands out, and none of those that differ by design."""

from __future__ import annotations

from dataclasses import replace

from profiler_ext.findings.rules import unlike_siblings
from profiler_ext.records.analysis import Analysis, Communication
from tests.findings.stepping import US, Script, is_silent, judged, only, placed
from tests.handmade import interned, ints, masked


def layers(*durations_us: int, children: tuple[str, ...] = ()) -> Analysis:
    """A step with one op, and one place, for each layer."""
    script = Script()
    for at, duration in enumerate(durations_us):
        script.launch("vectorized_elementwise_kernel", duration * US, op=f"aten::layer{at}")
    script.wait()
    script.end_step()
    names = {f"layer{at}": f"blocks.{at}" for at in range(len(durations_us))}
    names |= {f"layer{at}": name for at, name in enumerate(children)}
    return placed(script.analysis(), **{op: {"module": name} for op, name in names.items()})


def test_one_layer_that_takes_twice_as_long_stands_out() -> None:
    found = only(unlike_siblings.RULE, layers(100, 101, 99, 250, 100))
    assert (found.location.module, found.est_saving_ns) == ("blocks.3", 150 * US)
    assert [each.value for each in found.evidence] == [250 * US, 100 * US, 5]


def test_three_layers_that_take_the_same_are_of_another_kind() -> None:
    """Every third layer of an image encoder attends to all positions, the others to windows."""
    rule = unlike_siblings.RULE
    assert is_silent(rule, layers(100, 101, 420, 99, 100, 425, 100, 100, 415))
    unequal = layers(100, 101, 420, 99, 100, 300, 100, 100, 415)
    assert len(judged(rule, unequal).ranked) == 3


def convolving(made: Analysis) -> Analysis:
    """The same, with a convolution in one of the layers."""
    convolves = replace(made.places[0], aten_op="aten::cudnn_convolution")
    return replace(made, places=(convolves, *made.places[1:]))


def test_one_of_equal_layers_that_convolve_stands_out() -> None:
    found = only(unlike_siblings.RULE, convolving(layers(180, 100, 101, 99, 250, 100, 60)))
    assert (found.location.module, found.est_saving_ns) == ("blocks.4", 150 * US)


def test_layers_that_convolve_are_of_other_sizes_by_design() -> None:
    halved = layers(400, 400, 200, 200, 100, 100, 100, 100, 100)
    assert not is_silent(unlike_siblings.RULE, halved)
    assert is_silent(unlike_siblings.RULE, convolving(halved))
    assert is_silent(unlike_siblings.RULE, convolving(layers(250, 100, 101, 99, 100)))


def test_what_a_layer_runs_next_to_a_collective_counts_half() -> None:
    assert only(unlike_siblings.RULE, next_to_collective(500)).est_saving_ns == 150 * US
    assert is_silent(unlike_siblings.RULE, next_to_collective(250))


def next_to_collective(fourth_us: int) -> Analysis:
    """Five layers, of which the fourth runs beside a collective of this length."""
    made = layers(100, 101, 99, fourth_us, 100, fourth_us)
    start_ns = made.launches.start_ns.copy()
    start_ns[5] = start_ns[3]
    is_collective = [each.module == "blocks.5" for each in made.places]
    places = tuple(
        replace(each, module=None) if found else each
        for each, found in zip(made.places, is_collective, strict=True)
    )
    communication = Communication(
        launch=ints([5]),
        collective=interned(["allreduce"]),
        process_group=interned(["0"]),
        exposed_ns=ints([0]),
        waiting_ns=masked([0]),
        late_ns=masked([0]),
    )
    launches = replace(made.launches, start_ns=start_ns)
    return replace(made, launches=launches, communication=communication, places=places)


def test_layers_that_differ_anyhow_are_no_siblings_of_one() -> None:
    assert is_silent(unlike_siblings.RULE, layers(100, 160, 40, 250, 120))
    assert is_silent(unlike_siblings.RULE, layers(100, 101, 250))


def test_a_layer_with_other_modules_in_it_is_no_sibling() -> None:
    others = ("blocks.0", "blocks.1", "blocks.2", "blocks.3.downsample", "blocks.4")
    assert is_silent(unlike_siblings.RULE, layers(100, 101, 99, 250, 100, children=others))
