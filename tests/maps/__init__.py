"""The maps in ``docs`` for who works on the code, made from it; ``make reference`` writes them."""

from __future__ import annotations

from collections.abc import Callable

from tests.maps.hooks import hooks
from tests.maps.mechanisms import mechanisms
from tests.maps.rooms import rooms
from tests.maps.stored import stored

MAPS: dict[str, Callable[[], str]] = {
    "rooms.md": rooms,
    "hooks.md": hooks,
    "mechanisms.md": mechanisms,
    "records.md": stored,
}
"""What makes each map's text, by its name."""
