"""The browser of the tests: Chromium, driven by Playwright, without network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.patience import patience_s

_NAMES = ("chromium", "chromium-browser", "google-chrome")
# Without these the browser itself asks its maker's servers.
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)


@contextmanager
def open_page(server: str | None = None, **options):
    """Open a page of a fresh browser; skips the test where there is none.

    Args:
        server: the one address that may be asked; without it only the page's own file.
        options: of the page.

    Yields:
        The page, and a list that grows with what went wrong in it: errors, dialogs, requests.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    binary = next(filter(None, map(shutil.which, _NAMES)), None)
    if binary is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=binary, args=list(_FLAGS))
        try:
            page = browser.new_page(**options)
            page.set_default_timeout(1_000 * patience_s(30))
            yield from _watched(page, server)
        finally:
            browser.close()


def _watched(page, server: str | None) -> Iterator[tuple]:
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (troubles.append("dialog"), dialog.dismiss()))
    page.on("console", lambda reported: troubles.append(f"{reported.type}: {reported.text}"))
    page.on("request", lambda asked: None if _is_own(asked, server) else troubles.append(asked.url))
    yield page, troubles


def _is_own(request, server: str | None) -> bool:
    if server is not None:
        return request.url.startswith((server, "data:"))
    return request.url.startswith("file:") and request.is_navigation_request()
