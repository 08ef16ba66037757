"""What is said of a place that cannot be opened, and which URL a file has there."""

from __future__ import annotations

import sys

import fsspec
import pytest

from profiler_ext.cluster.listing import rank_files, url_of
from profiler_ext.errors import MissingExtraError, UsageError

OPENED = sys.modules["fsspec.registry"]._registry
"""The file systems that were opened before, by their scheme."""


@pytest.mark.parametrize(
    ("url", "package"),
    [("s3://runs/7", "s3fs"), ("gs://runs/7", "gcsfs"), ("abfs://runs/7", "adlfs")],
)
def test_where_a_package_is_lacking_its_command_is_reported(
    url: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(OPENED, url.partition(":")[0], raising=False)
    with pytest.raises(MissingExtraError, match=f"is not installed; run: pip install {package} "):
        rank_files(url)


def test_without_hadoop_one_short_sentence_says_what_it_needs() -> None:
    with pytest.raises(UsageError, match="set JAVA_HOME and HADOOP_HOME") as caught:
        rank_files("hdfs://namenode:8020/job")
    assert len(str(caught.value)) < 600 and str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("place", "root", "path", "url"),
    [
        ("/job", "/job", "/job/rank_0/f", "/job/rank_0/f"),
        ("file:///job/", "/job", "/job/rank_0/f", "/job/rank_0/f"),
        ("webhdfs://h:9870/job", "/job", "/job/f", "webhdfs://h:9870/job/f"),
        ("simplecache::s3://b/job/", "b/job", "b/job/f", "simplecache::s3://b/job/f"),
    ],
)
def test_a_file_s_url_keeps_the_host_and_the_chain(
    place: str, root: str, path: str, url: str
) -> None:
    assert url_of(fsspec.filesystem("file"), place, root, path) == url
