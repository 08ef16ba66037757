"""Which code is the program's."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from types import CodeType

import pytest

from profiler_ext.python_lines.program_code import ProgramCode, borrowed_lines, has_columns
from profiler_ext.python_lines.watch import entries, frequent_code

LIBRARY = sysconfig.get_path("stdlib")
PROGRAM = ProgramCode(("/torch",))


@pytest.mark.parametrize(
    ("file", "module", "is_program"),
    [
        ("/home/me/train.py", "__main__", True),
        ("/torchvision/models.py", "torchvision.models", True),
        (str(Path(LIBRARY, "site-packages", "transformers", "llama.py")), "transformers", True),
        ("/x/configuration_utils.py", "transformers.configuration_utils", False),
        ("/x/configuration_llama.py", "transformers.models.llama.configuration_llama", False),
        ("/x/modeling_llama.py", "transformers.models.llama.modeling_llama", True),
        ("/home/me/configuration_utils.py", "mine.configuration_utils", True),
        ("/torch/nn/functional.py", "torch.nn.functional", False),
        ("/home/me/generated.py", "torch._inductor.generated", False),
        (str(Path(LIBRARY, "contextlib.py")), "contextlib", False),
        ("<string>", "__main__", False),
        ("/home/me/numpy/core.py", "numpy.core", False),
        (str(Path(LIBRARY, "site-packages", "rich", "console.py")), "rich.console", False),
    ],
)
def test_the_program_is_what_is_neither_torch_s_nor_the_library_s(
    file: str, module: str, is_program: bool
) -> None:
    assert PROGRAM.holds(file, module) == is_program


def test_what_runs_a_forward_again_is_known_by_its_file_and_name() -> None:
    def backward() -> None: ...

    code = backward.__code__
    file = "/x/torch/utils/checkpoint.py"
    assert ProgramCode.recomputes(code.replace(co_filename=file))
    assert not ProgramCode.recomputes(code.replace(co_filename=file, co_name="forward"))
    assert not ProgramCode.recomputes(code)


def test_the_code_whose_lines_are_many_among_some_entries_is_frequent() -> None:
    def one() -> None: ...

    def other() -> None: ...

    log = [0, 1, one.__code__, 3] * 7 + [0, 1, other.__code__, 0] * 2 + [0, 1, other.__code__, 8]
    assert list(frequent_code(entries(log), 1 / 8)) == [one.__code__]


def test_code_that_python_compiled_borrows_no_line() -> None:
    def calls() -> object:
        with Path() as path:
            return [str(each for each in (path, *(str(n) for n in range(3))))]

    codes = [calls.__code__, *(c for c in calls.__code__.co_consts if isinstance(c, CodeType))]
    assert [borrowed_lines(code, knows_resumed=True) for code in codes] == [frozenset()] * len(
        codes
    )
    assert len(codes) > 1
    assert has_columns()
