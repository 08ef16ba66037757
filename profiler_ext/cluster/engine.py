"""The Dask cluster, local or by a scheduler's address, and the tasks submitted to it.

Dask pickles what its processes send each other: functions and records by name, tables as pandas
has them. Nothing that comes from a file is unpickled. The local cluster listens on the loopback
address only, encrypted, with a certificate made for it, so that no other user of the machine can
send it work.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from profiler_ext.errors import UsageError
from profiler_ext.exporters.extras import CLUSTER
from profiler_ext.version import VERSION

if TYPE_CHECKING:
    from distributed import Client, Future


# How many parts of each version must agree.
_VERSION_PARTS = {"python": 2, "dask": 3, "distributed": 3, "numpy": 1, "pandas": 1}
_LOOPBACK = "127.0.0.1"
_WAIT_S = 30
_MIN_BYTES = 256 << 20
_HIGH_PRIORITY = 10  # work that frees memory goes first
_SILENT = 50  # log only what is fatal: a worker that ends is started again


def check_versions(reported: Mapping[str, Any]) -> None:
    """Refuse a scheduler or workers whose versions differ from this process's."""
    own = reported["client"]
    others = {"Dask scheduler": reported["scheduler"]} | {
        f"Dask worker {address}": each for address, each in reported["workers"].items()
    }
    result = {
        name: lines for name, each in others.items() if (lines := list(_mismatches(own, each)))
    }
    if not result:
        return
    name, differences = next(iter(result.items()))
    more = f" (and {len(result) - 1:,} more of its processes)" if len(result) > 1 else ""
    packages = [f"{package}=={here}" for package, _, here in differences if package != "python"]
    remedy = f"pip install {' '.join(packages)}" if packages else "the same Python"
    raise UsageError(
        f"the {name}{more} has "
        + ", ".join(f"{package} {theirs}, expected {here}" for package, theirs, here in differences)
        + f"; use {remedy} there, or its versions here"
    )


def _mismatches(own: Mapping[str, Any], each: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield each package of another version: its name, that version and this process's."""
    here, theirs = _versions(own), _versions(each)
    for package, parts in _VERSION_PARTS.items():
        mine, its = here.get(package), theirs.get(package)
        if mine and its and mine.split(".")[:parts] != its.split(".")[:parts]:
            yield package, its, mine


def _versions(reported: Mapping[str, Any]) -> dict[str, str]:
    """Return the version of each package; Dask has Python's as ``3.11.7.final.0``."""
    result = {name: str(version) for name, version in reported["packages"].items() if version}
    return result | {"python": ".".join(result.get("python", "").split(".")[:3])}


@contextmanager
def connected(
    scheduler: str | None = None, workers: int | None = None, memory_bytes: int | None = None
) -> Iterator[Client]:
    """Yield a client of a scheduler, or of a local cluster that ends with it.

    Args:
        workers: processes of the local cluster; by default one a core.
        memory_bytes: of each of them, before it spills to the disk and is restarted.

    Raises:
        MissingExtraError: Dask is not installed.
        UsageError: There is no scheduler, its workers lack this package or have another Dask, or
            the memory is less than a worker takes before it reads anything.
    """
    CLUSTER.require("reading a job's ranks")
    if memory_bytes is not None and memory_bytes < _MIN_BYTES:
        raise UsageError(
            f"a worker of {memory_bytes >> 20} MiB cannot read anything: it takes more before it "
            f"begins; give it {_MIN_BYTES >> 20} MiB at least"
        )
    with _remote(scheduler) if scheduler else _local(workers, memory_bytes) as client:
        _check_workers(client)
        yield client


class Work:
    """Calls functions of this package with records, on a cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def workers(self) -> int:
        """How many workers there are now."""
        return len(self._client.nthreads())

    def held(self, function: Callable[[Any], object], over: Sequence[object]) -> list[Future[Any]]:
        """Call a function with each record; the results stay on the workers."""
        futures: list[Future[Any]] = self._client.map(function, list(over), pure=False)
        return futures

    def submit(self, function: Callable[..., object], *arguments: object) -> Future[Any]:
        """Call a function with futures; returns the future of its result."""
        return self._client.submit(function, *arguments, pure=False, priority=_HIGH_PRIORITY)

    def results(self, futures: Sequence[Future[Any]]) -> Iterator[tuple[int, object]]:
        """Yield each result, or its error, with its index as it comes; releases the futures."""
        from distributed import as_completed

        at = {future.key: index for index, future in enumerate(futures)}
        for future in as_completed(futures, loop=self._client.loop):
            error = future.exception() if future.status == "error" else None
            yield at[future.key], future.result() if error is None else error

    def result(self, future: Future[Any]) -> Any:
        """Return a result; a :class:`UsageError` if its workers ended, one after another."""
        if future.exception() is not None and is_killed_worker(future.exception()):
            raise lost()
        return future.result()


def is_killed_worker(error: object) -> bool:
    """Return whether a result failed because workers ended, one after another."""
    from distributed import KilledWorker

    return isinstance(error, KilledWorker)


def lost() -> UsageError:
    """Return the error of workers that ended while they merged ranks."""
    return UsageError("every worker that put ranks together ended; give them more memory")


@contextmanager
def _remote(scheduler: str) -> Iterator[Client]:
    from distributed import Client

    try:
        with _without_warning("Mismatched versions found"):
            client = Client(scheduler, timeout=_WAIT_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"there is no Dask scheduler at {scheduler}: {error}; start one with `dask scheduler`, "
            "and give the address that it prints"
        ) from error
    with client:
        yield client


@contextmanager
def _local(workers: int | None, memory_bytes: int | None) -> Iterator[Client]:
    import dask
    from distributed import Client, LocalCluster

    config: dict[str, object] = {
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        # A paused worker waits for ever if nobody frees its memory. Let it spill to the disk; one
        # that still has too little memory ends, and is reported.
        "distributed.worker.memory.pause": False,
    }
    with (
        dask.config.set(config),
        # Dask's dashboard server, without pages here, takes any port where its own is taken.
        _without_warning("Port .* is already in use"),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=memory_bytes or "auto",
            host=_LOOPBACK,
            dashboard_address=None,
            security=True,
            silence_logs=_SILENT,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def _without_warning(begins: str) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", begins)
        yield


def _check_workers(client: Client) -> None:
    """Refuse workers that would not read as this process does."""
    with suppress(TimeoutError):
        client.wait_for_workers(1, timeout=_WAIT_S)
    versions: Any = client.get_versions()
    check_versions(versions)
    reported = client.run(worker_version, on_error="return")
    if not reported:
        raise UsageError("the Dask scheduler has no worker; start some with `dask worker ADDRESS`")
    for worker, version in reported.items():
        if version != VERSION:
            raise UsageError(
                f"the Dask worker {worker} has "
                f"{f'profiler-ext {version}' if isinstance(version, str) else version!r}, expected "
                f"profiler-ext {VERSION}; install that on every worker"
            )


def worker_version() -> str:
    """Return the version of this package, on a worker."""
    return VERSION
