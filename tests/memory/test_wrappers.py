"""The statements of a generated wrapper that allocate."""

from __future__ import annotations

from profiler_ext.memory.wrappers import Alias, Wrapper, saved_values

FORWARD = """
class Runner:
    def call(self, args):
        primals_1, primals_2 = args
        args.clear()
        buf0 = empty_strided_cuda((7, 11), (11, 1), torch.bfloat16)
        extern_kernels.mm(primals_1, primals_2, out=buf0)
        with torch.cuda._DeviceGuard(0):
            workspace_0 = empty_strided_cuda((13, ), (1, ), torch.uint8)
            buf1 = empty_strided_cuda((7, 11), (12, 1), torch.float32)
            buf2 = empty_strided_cuda((7, s0), (s0, 1), torch.float32)
            triton_fused_0.run(buf0, workspace_0, buf1,
                               buf2, 77, stream=stream0)
            buf3 = torch.ops.aten.sort.default(buf1)
        return (buf2, primals_1, buf0, reinterpret_tensor(buf1, (77, ), (1, ), 0), )
"""
BACKWARD = """
def call(args):
    primals_1, mm, view_3, tangents_1 = args
    return (None, )
"""


def test_sizes_are_those_of_the_layout() -> None:
    sizes = {
        each.variables[0]: each.size_bytes for each in Wrapper(FORWARD).statements if each.allocates
    }
    assert sizes["buf0"] == 7 * 11 * 2
    assert sizes["buf1"] == (6 * 12 + 10 + 1) * 4
    assert sizes["workspace_0"] == 13
    assert sizes["buf2"] is None


def test_a_line_leads_to_its_statement_and_its_buffers() -> None:
    wrapper = Wrapper(FORWARD)
    run = wrapper.at_line(FORWARD.splitlines().index("                               buf2, 77, "
                                                     "stream=stream0)") + 1)  # fmt: skip
    assert run is not None and "triton_fused_0" not in run.variables and "buf1" in run.variables
    made = wrapper.statements[2]
    assert made.is_workspace
    assert [*wrapper.buffers(made)] == [("workspace_0",), run.variables]


def test_order_counts_only_if_all_sizes_agree() -> None:
    wrapper = Wrapper(FORWARD)
    sizes = [7 * 11 * 2, 13, (6 * 12 + 11) * 4, 1234]
    ordered = wrapper.in_order(sizes)
    assert ordered is not None
    assert [each.variables[0] for each in ordered] == ["buf0", "workspace_0", "buf1", "buf2"]
    assert wrapper.in_order([sizes[1], sizes[0], *sizes[2:]]) is None
    assert wrapper.in_order(sizes[:3]) is None


def test_what_a_forward_saves_has_the_backwards_names() -> None:
    forward, backward = Wrapper(FORWARD), Wrapper(BACKWARD)
    inputs = frozenset(forward.arguments)
    assert saved_values(forward, backward, inputs) == {"buf0": ("mm",), "buf1": ("view_3",)}
    other = Wrapper(BACKWARD.replace("primals_1,", "primals_2,"))
    assert saved_values(forward, other, inputs) == {}


REUSES = """
def call(args):
    primals_1, mm, tangents_1 = args
    buf0 = empty_strided_cpu((8, 4), (4, 1), torch.float32)
    buf1 = reinterpret_tensor(buf0, (4, 8), (8, 1), 0)  # alias
    extern_kernels.mm(primals_1, mm, out=buf0)
    buf2 = buf0; del buf0  # reuse
    buf3 = reinterpret_tensor(mm, (8, 4), (4, 1), 0); del mm  # reuse
    buf4 = extern_kernels.mm(buf2, buf3)
    return (buf4,)
"""


def test_names_of_one_memory_are_views_and_reuses() -> None:
    assert Wrapper(REUSES).aliases == [
        Alias("buf1", "buf0", is_reuse=False),
        Alias("buf2", "buf0", is_reuse=True),
        Alias("buf3", "mm", is_reuse=True),
    ]


def test_what_is_only_checked_is_not_used() -> None:
    checked = "    assert_size_stride(tangents_1, (8, 4), (4, 1))\n    del tangents_1\n"
    text = REUSES.replace("    buf0 =", f"{checked}    buf0 =")
    text += "def benchmark_compiled_module(args):\n    return [tangents_1]\n"
    used = Wrapper(text).used
    assert {"primals_1", "mm", "buf0", "buf2"} < used and "tangents_1" not in used


def test_text_that_is_no_python_has_no_statements() -> None:
    assert Wrapper("void inductor_entry_impl() {").statements == []
