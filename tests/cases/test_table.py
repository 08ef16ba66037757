"""The table of the cases says what was found, and rounds nothing up."""

from exporters.tables import fraction_at
from tests.analyses import gpu_step
from tests.cases.table import placed_by_name, table_text


def test_a_table_names_gaps_errors_and_what_is_missing():
    good = {
        "case": "cnn",
        "launches": 60,
        "device_us": 232.0,
        "lines": 0.99999,
        "by_name": 0.25,
        "ok": True,
        "missing": ["optimizer"],
        "gaps": {"no_source_line": (12, 1552)},
    }
    assert table_text([good, {"case": "fp8", "ok": False, "error": "Refused:\n  no"}]) == (
        "case  launches  device us  to lines  by name  ok   gaps and what is missing\n"
        "cnn         60      232.0    99.99%   25.00%  yes  "
        "no_source_line 1.6 us; missing: optimizer\n"
        "fp8                                           NO   Refused: no\n"
        "1 of 2 cases are good\n"
    )


def test_a_name_places_only_what_one_call_site_launches():
    analysis = gpu_step()
    triton = 20_001 + 30_000
    assert placed_by_name(analysis) == triton / (50_000 + 20_001 + 30_000 + 40_000 + 20_000)
    assert placed_by_name(analysis) < fraction_at(analysis)
