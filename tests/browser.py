"""Owns the browser of the tests: Chromium, driven by Playwright, without network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def open_page(**options):
    """Open a page of a fresh browser; skips the test where there is none.

    Yields:
        The page, and a list that grows with what went wrong in it: errors, dialogs, requests.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    binary = next(filter(None, map(shutil.which, _NAMES)), None)
    if binary is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        try:
            yield from _watched(browser.new_page(**options))
        finally:
            browser.close()


def _watched(page) -> Iterator[tuple]:
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (troubles.append("dialog"), dialog.dismiss()))
    page.on("console", lambda said: troubles.append(f"{said.type}: {said.text}"))
    page.on("request", lambda asked: None if _is_own(asked) else troubles.append(asked.url))
    yield page, troubles


def _is_own(request) -> bool:
    return request.url.startswith("file:") and request.is_navigation_request()
