"""Records in AOTInductor's packages: next to the files of a model, in the ``.pt2`` or on disk.

Source: ``torch/export/pt2_archive/constants.py``, ``AOTINDUCTOR_DIR``, below one folder that has
the archive's name; ``torch/csrc/inductor/aoti_package/model_package_loader.cpp`` reads the files
that it needs by their suffixes, and takes others.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from pathlib import Path

from profiler_ext.errors import StoreError
from profiler_ext.file_io import read_regular, replacing
from profiler_ext.store.encoding import INFLATED_LIMIT_BYTES
from profiler_ext.store.folder import SUFFIX

_RECORD = re.compile(
    r"[^/]+/data/aotinductor/(?P<model>[^/]+)/[^/]+" + re.escape(SUFFIX), re.DOTALL
)


def package_key(record: bytes) -> str:
    """Return the key of a package's record, which the marks of its calls carry."""
    return f"aoti{hashlib.blake2b(record, digest_size=16).hexdigest()}"


def write_record(code: Path, record: bytes) -> Path:
    """Write a record next to the code that AOTInductor made; raises OutputError."""
    path = code.with_name(code.name + SUFFIX)
    with replacing(path, durable=False) as file:
        file.write(record)
    return path


def package_records(path: Path) -> dict[str, bytes]:
    """Return the record of each model in a package, or of a library by the record next to it.

    Raises:
        StoreError: It cannot be read, or is no package.
    """
    try:
        if not zipfile.is_zipfile(path):
            return {"model": read_regular(path.with_name(path.name + SUFFIX), INFLATED_LIMIT_BYTES)}
        with zipfile.ZipFile(path) as package:
            return {
                match["model"]: package.read(entry)
                for entry in package.infolist()
                if (match := _RECORD.fullmatch(entry.filename)) is not None
                and entry.file_size <= INFLATED_LIMIT_BYTES
            }
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise StoreError(f"{path} has no record that can be read: {error}") from error
