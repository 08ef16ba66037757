"""A program is read as Python reads it."""

import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from profiler_ext.cli import main

TELLS_ITS_SOURCE = """
import inspect, sys
main = sys.modules["__main__"]
print(type(__loader__).__name__, __loader__.get_source("__main__"), inspect.getmodule(main) is main)
sys.exit(4)
"""


def test_a_script_from_a_pipe_is_run(tmp_path: Path) -> None:
    script = "import sys; print(sys.argv[1:], __name__); sys.exit(4)"
    command = f"{sys.executable} -m profiler_ext run -o {tmp_path / 'out'} <(echo '{script}') a b"
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (4, "['a', 'b'] __main__\n")


def test_a_compiled_script_has_no_source_as_under_python(tmp_path: Path) -> None:
    script, compiled = tmp_path / "script.py", str(tmp_path / "script.pyc")
    script.write_text(TELLS_ITS_SOURCE)
    py_compile.compile(str(script), cfile=compiled)
    ours = [sys.executable, "-m", "profiler_ext", "run", "-o", str(tmp_path / "out"), compiled]
    plain, run = (
        subprocess.run(command, capture_output=True, text=True, check=False)
        for command in ([sys.executable, compiled], ours)
    )
    assert plain.stdout == "SourcelessFileLoader None True\n"
    assert (run.returncode, run.stdout) == (plain.returncode, plain.stdout)


def test_a_script_that_is_a_link_to_itself_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(link)
    assert main(["run", "-o", str(tmp_path / "out"), str(link)]) == 2
    assert f"there is no script {link}" in capsys.readouterr().err


@pytest.mark.parametrize("program", [("script.py",), ("-m", "script")])
def test_a_program_has_its_arguments_whatever_ours_are(
    tmp_path: Path, program: tuple[str, ...]
) -> None:
    (tmp_path / "script.py").write_text("import sys; print(sys.argv[1:]); sys.exit(4)")
    words = [*program, "--", "--step", "5", "--s=3", "--n", "-o", "-1", "--", "-m", "--skip"]
    plain, run = (
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        for command in (
            [sys.executable, *words],
            [sys.executable, "-m", "profiler_ext", "run", "-o", "out", *words],
        )
    )
    assert plain.stdout == f"{words[len(program) :]}\n"
    assert (run.returncode, run.stdout) == (plain.returncode, plain.stdout)


@pytest.mark.parametrize(
    "does", ["raise RuntimeError('hook')", "raise KeyboardInterrupt", "sys.exit(5)", "return"]
)
def test_an_excepthook_of_the_program_is_called_as_python_calls_it(does, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys\ndef hook(*_):\n    print(sys.exc_info())\n    {does}\n"
        "sys.excepthook = hook\nraise ValueError('program')\n"
    )
    ours = [sys.executable, "-m", "profiler_ext", "run", "-o", str(tmp_path / "out"), str(script)]
    plain, run = (
        subprocess.run(command, capture_output=True, text=True, check=False)
        for command in ([sys.executable, str(script)], ours)
    )
    printed = [line for line in run.stderr.splitlines() if not line.startswith("profiler-ext: ")]
    assert plain.stdout == "(None, None, None)\n"
    assert (run.returncode, run.stdout) == (plain.returncode, plain.stdout)
    assert printed == plain.stderr.splitlines()
