"""What the package shows of itself before any of it is loaded."""

from __future__ import annotations

import pydoc
import subprocess
import sys

import profiler_ext


def test_dir_shows_what_there_is_to_use() -> None:
    shown = [name for name in dir(profiler_ext) if not name.startswith("__")]
    assert shown == sorted(profiler_ext.__all__)


def test_help_shows_profile_and_load_with_their_texts() -> None:
    reported = pydoc.render_doc(profiler_ext, renderer=pydoc.plaintext)
    assert "class profile(" in reported
    assert "Profile a training step and attribute its device time to the model." in reported
    assert "load(path: 'str | Path'" in reported
    assert "Read a session, or those of all ranks, without importing torch." in reported


def test_to_look_loads_nothing() -> None:
    code = (
        "import sys, profiler_ext; dir(profiler_ext); "
        "print({'torch', 'pandas', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
