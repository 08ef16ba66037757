"""``profiler-ext open``: what it writes, what it shows, and whom it serves the trace to."""

from __future__ import annotations

import os
import socket
import threading
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from profiler_ext import cli, load
from profiler_ext.exporters.perfetto import local_server
from profiler_ext.sessions.session import FILE_NAME
from tests.patience import patience_s

RECORDING = Path(__file__).parent / "fixtures" / "h200" / "mlp.session.pt.trace.json.gz"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "S").mkdir()
    (tmp_path / "S" / FILE_NAME).write_bytes(RECORDING.read_bytes())
    return tmp_path / "S"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser would have been given."""
    addresses: list[str] = []

    def open_address(address: str) -> bool:
        addresses.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", open_address)
    return addresses


def test_the_report_of_the_last_run_is_written_and_shown(
    folder: Path,
    opened: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder.rename(folder.with_name("profile_out"))
    monkeypatch.chdir(folder.parent)
    assert cli.main(["open"]) == 0
    page = folder.parent / "profile_out" / "report.html"
    assert page.is_file()
    assert opened == [page.as_uri()]
    assert capsys.readouterr() == (f"{page.as_uri()}\n", "")


def test_a_page_is_written_again_only_where_it_is_older_than_its_recording(
    folder: Path, opened: list[str]
) -> None:
    page = folder / "report.html"
    page.write_text("as it was")
    assert cli.main(["open", str(folder)]) == 0
    assert page.read_text() == "as it was"
    os.utime(page, ns=(0, 0))
    assert cli.main(["open", str(folder / FILE_NAME)]) == 0
    assert page.read_text().startswith("<!doctype html>")
    assert opened == [page.as_uri()] * 2


def test_the_page_of_a_folder_that_cannot_be_written_is_a_temporary_one(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    assert cli.main(["open", str(folder), "--print"]) == 0
    (made,) = (tmp_path / "tmp").iterdir()
    written = capsys.readouterr()
    assert written.out == f"{(made / 'report.html').as_uri()}\n"
    assert written.err == f"profiler-ext: written to {made}\n"
    assert [each.name for each in folder.iterdir()] == [FILE_NAME]


def test_a_trace_among_others_does_not_write_next_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.html").write_text("of another trace")
    trace = tmp_path / "one.pt.trace.json.gz"
    trace.write_bytes(RECORDING.read_bytes())
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    assert cli.main(["open", str(trace), "--print"]) == 0
    assert (tmp_path / "report.html").read_text() == "of another trace"
    assert f"file://{tmp_path}/tmp/" in capsys.readouterr().out


def test_ranks_are_one_page(tmp_path: Path, opened: list[str]) -> None:
    cases = RECORDING.parent / "cases"
    for rank in (0, 1):
        load(cases / f"ddp.rank_{rank}.session.pt.trace.json.gz").save(tmp_path / f"rank_{rank}")
    assert cli.main(["open", str(tmp_path)]) == 0
    assert opened == [(tmp_path / "report.html").as_uri()]


def test_without_a_browser_the_address_is_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    assert cli.main(["open", str(folder)]) == 0
    written = capsys.readouterr()
    assert written.out == f"{(folder / 'report.html').as_uri()}\n"
    assert written.err == (
        "profiler-ext: no browser can be started here: open this address in yours\n"
    )


def test_what_is_no_session_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    assert cli.main(["open", str(tmp_path / "gone")]) == 2
    assert "[bad_trace]" in capsys.readouterr().err
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A free port in place of the one that the Perfetto UI reads from."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        number: int = taken.getsockname()[1]
    monkeypatch.setattr(local_server, "PORT", number)
    return number


class Browser:
    """Fetches addresses while the command serves, as the page of the Perfetto UI does."""

    def __init__(self, *addresses: tuple[str, dict[str, str]]) -> None:
        self.addresses = addresses
        self.shown = ""
        self.answers: list[tuple[int, bytes, str | None]] = []
        self.thread = threading.Thread(target=self._fetch)

    def open(self, address: str) -> bool:
        self.shown = address
        self.thread.start()
        return True

    def _fetch(self) -> None:
        for address, headers in self.addresses:
            request = urllib.request.Request(address, headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=patience_s(5)) as answer:
                    allowed = answer.headers["Access-Control-Allow-Origin"]
                    self.answers.append((answer.status, answer.read(), allowed))
            except urllib.error.HTTPError as error:
                allowed = error.headers["Access-Control-Allow-Origin"]
                self.answers.append((error.code, b"", allowed))


def test_the_trace_is_served_to_the_perfetto_ui_alone_until_it_was_fetched(
    folder: Path,
    port: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "trace.pftrace").write_bytes(b"a trace")
    at = f"http://127.0.0.1:{port}"
    browser = Browser(
        (f"{at}/{FILE_NAME}", {}),
        (f"{at}/trace.pftrace", {"Host": f"rebound.example:{port}"}),
        (f"{at}/trace.pftrace", {}),
    )
    monkeypatch.setattr(webbrowser, "open", browser.open)
    assert cli.main(["open", str(folder), "--perfetto"]) == 0
    browser.thread.join(patience_s(5))
    refused = (404, b"", None)
    assert browser.answers == [refused, refused, (200, b"a trace", "https://ui.perfetto.dev")]
    written = capsys.readouterr()
    assert written.out == f"{browser.shown}\n"
    assert written.err == (
        "profiler-ext: serving the trace until it is fetched once (Ctrl-C to stop)\n"
    )
    page = urlsplit(browser.shown)
    assert (page.scheme, page.netloc, page.path) == ("https", "ui.perfetto.dev", "/")
    assert parse_qs(page.fragment.partition("?")[2])["url"] == [f"{at}/trace.pftrace"]
    with socket.socket() as again:
        assert again.connect_ex(("127.0.0.1", port)) != 0  # nobody listens any more


def test_a_port_that_is_in_use_is_refused_with_what_to_do(
    folder: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert cli.main(["open", str(folder), "--perfetto", "--print"]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert f"[output] cannot serve on 127.0.0.1:{port} (Address already in use)" in written.err
    assert f"or open {folder / 'trace.pftrace'} there by hand" in written.err
