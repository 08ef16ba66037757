"""A program in a process of its own leaves a row, or one that says why there is none."""

from __future__ import annotations

import pytest

from verification.rows import row_of_process

WRITES = """import json, pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
(out / "one.json").write_text(json.dumps({"name": "one", "of": sys.argv[1]}))"""


@pytest.mark.parametrize(
    ("text", "limit_s", "expected"),
    [
        (WRITES, 60, {"name": "one", "of": "--one"}),
        ("raise SystemExit(3)", 60, "the process ended without a row"),
        ("import time; time.sleep(600)", 0.5, "not done within 0.5 s"),
    ],
)
def test_a_process_leaves_its_row_or_the_reason_why_not(tmp_path, text, limit_s, expected):
    (tmp_path / "program.py").write_text(text)
    out = tmp_path / "out"
    for _ in range(2):  # the second time an earlier row is there
        row = row_of_process(
            "one", ["program", "--one"], out, {"PYTHONPATH": str(tmp_path)}, limit_s
        )
        if isinstance(expected, dict):
            assert row == expected
        else:
            assert row == {"name": "one", "failure": f"{expected}: see {out / 'one.log'}"}
        (out / "one.json").write_text('{"name": "one", "of": "an earlier run"}')
