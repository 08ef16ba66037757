"""The maps in ``docs`` for who works on the code, made from it; ``make reference`` writes them."""

from __future__ import annotations

from tests.maps.hooks import hooks
from tests.maps.mechanisms import mechanisms
from tests.maps.rooms import rooms
from tests.maps.stored import stored


def maps() -> dict[str, str]:
    """Return each map's text by its name."""
    return {
        "rooms.md": rooms(),
        "hooks.md": hooks(),
        "mechanisms.md": mechanisms(),
        "records.md": stored(),
    }
