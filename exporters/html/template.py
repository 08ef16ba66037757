"""Pages made from the files in ``static``, and the policy that blocks other scripts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from profiler_ext.file_io import replacing

STATIC_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'"
_MODULE_WORDS = re.compile(r'^(?:import .* from "\./[\w-]+\.js";\n|export )', re.MULTILINE)
_JSON_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def render_page(name: str, **values: str) -> str:
    """Return a page with the common head; the default policy allows no script."""
    values = {"policy": STATIC_POLICY} | values
    return Template(resource("head.html") + resource(name)).substitute(values)


def write_page(path: Path, page: str) -> Path:
    """Write a page; lone surrogates, as of a name cut in two, are escaped."""
    with replacing(path) as file:
        file.write(page.encode("utf-8", "backslashreplace"))
    return path


def resource(name: str) -> str:
    """Return the text of a static file."""
    return files(__name__.rpartition(".")[0]).joinpath("static", name).read_text(encoding="utf-8")


def bundled(names: Iterable[str]) -> str:
    """Return modules as one script, in order: a page opened from a file cannot load modules."""
    modules = (_MODULE_WORDS.sub("", resource(name)) for name in names)
    return '"use strict";\n' + "\n".join(modules)


def json_text(data: Mapping[str, Any]) -> str:
    """Return data as JSON that cannot end a script element."""
    text = json.dumps(data, separators=(",", ":"))
    for character, escaped in _JSON_ESCAPES.items():
        text = text.replace(character, escaped)
    return text


def script_policy(scripts: Iterable[str]) -> str:
    """Return a policy that allows these scripts only."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in digests)
    return f"{STATIC_POLICY}; script-src {hashes}"
