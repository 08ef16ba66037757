"""The table of the cases says what was found, and rounds nothing up."""

from profiler_ext.exporters.tables import fraction_at
from tests.analyses import gpu_step
from tests.cases.provenance import Compared, TorchProvenance, placed_by_torch
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


def test_torchs_provenance_places_a_launch_whose_name_has_one_set_of_lines():
    analysis = gpu_step()
    line_7, line_8 = '  File "/m/a.py", line 7, in f\n    x\n', '  File "/m/a.py", line 8, in f\n'
    torchs = TorchProvenance()
    torchs.add({"triton_poi_fused__to_copy_gelu_0:1": [line_7, line_8], "extern_kernels.mm:2": []})
    torchs.add({"triton_red_fused_gelu_backward_sum_0:1": [line_7]})
    torchs.add({"triton_red_fused_gelu_backward_sum_0:1": [line_8]})
    both = frozenset({("a.py", 7), ("a.py", 8)})
    total = 50_000 + 20_001 + 30_000 + 40_000 + 20_000
    part, name = 20_001 / total, "triton_poi_fused__to_copy_gelu_0"
    assert placed_by_torch(analysis, torchs, {2: both}) == Compared(part, part, {})
    less = both - {("a.py", 7)}
    assert placed_by_torch(analysis, torchs, {2: less}) == Compared(
        part, 0.0, {name: (sorted(both), sorted(less))}
    )


def test_what_torch_places_stands_next_to_what_a_name_places():
    row = {"case": "cnn", "by_name": 0.25, "by_torch": 0.5, "by_torch_agreeing": 0.4, "ok": True}
    assert table_text([row]).splitlines()[:2] == [
        "case  launches  device us  to lines  by name  by torch  as ours  ok   "
        "gaps and what is missing",
        "cnn                                   25.00%    50.00%   40.00%  yes",
    ]
