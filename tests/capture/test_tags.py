"""torch's backward tag is kept as torch gives it, apart from the user's labels."""

import pytest

from profiler_ext.torch_compat import behaviour, fx


@pytest.fixture
def tags_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(behaviour._SHOWN, behaviour.TAGS_BACKWARD_NODES, True)


@pytest.mark.usefixtures("tags_backward")
def test_a_torch_that_tags_says_yes_or_no() -> None:
    assert fx.autograd_backward({"autograd_backward": True}) is True
    assert fx.autograd_backward({}) is False


def test_a_torch_that_never_tags_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(behaviour._SHOWN, behaviour.TAGS_BACKWARD_NODES, False)
    assert fx.autograd_backward({}) is None


def test_the_old_place_of_the_tag_is_read_and_is_no_label_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(behaviour._SHOWN, behaviour.TAGS_BACKWARD_NODES, False)
    meta = {"custom": {"autograd_backward": True, "region": "trunk", "ac_region_id": 3}}
    assert fx.autograd_backward(meta) is True
    assert fx.annotation(meta) == (("ac_region_id", "3"), ("region", "trunk"))
