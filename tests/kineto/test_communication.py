"""Communication is known by the names of many libraries, and by those that a user adds."""

from __future__ import annotations

import re

import pytest

from profiler_ext.kineto.communication import (
    KERNELS,
    OPS,
    VARIABLE,
    CommunicationNames,
    collective_name,
    is_communication,
    op_collective,
)

_ALL_REDUCE = "allreduce"
FOUND = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": _ALL_REDUCE,
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": _ALL_REDUCE,
    "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32": _ALL_REDUCE,
    "ncclSymDevKernel_ReduceScatter_LL_sum_f16(ncclSymDevArgs)": "reducescatter",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)": "",
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)": "",
    "mscclKernel_Sum_float_LL_true(ncclDevComm*)": "",
    "void mscclpp::collective::(anonymous namespace)::allreducePacket<0, float>(float*)": (
        _ALL_REDUCE
    ),
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(...)": _ALL_REDUCE,
    "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<float, 8>(...)": _ALL_REDUCE,
    "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*, char*)": "allgather",
    "void (anonymous namespace)::one_shot_all_reduce_kernel<float, 16, 8>(...)": _ALL_REDUCE,
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16, 8>()": _ALL_REDUCE,
    "void (anonymous namespace)::two_shot_all_reduce_kernel<float, 16, 8, false, false>()": (
        _ALL_REDUCE
    ),
    "void (anonymous namespace)::two_shot_all_reduce_kernel<float, 16, 8, true, false>()": (
        "reducescatter"
    ),
    "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int)": "barrier",
    "c10d::symmetric_memory::put_signal_kernel(unsigned int**, int, int)": "",
    "c10d::nvshmem_extension::allToAllV_2d(void*, void*, long*, long*)": "alltoall",
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<half, 8>(...)": _ALL_REDUCE,
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)": _ALL_REDUCE,
    "_ZN5aiter26cross_device_reduce_2stageIDF16bLi8ELb0EEEv": _ALL_REDUCE,
    "_ZN12_GLOBAL__N_126multimem_all_reduce_kernelIfLi16EEEvPT_m": _ALL_REDUCE,
    "void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*)": "dispatch",
    "void deep_ep::legacy::internode_ll::combine<true, 16>(void*)": "combine",
    "void deep_ep::elastic::hybrid_dispatch_impl<true>(void*)": "dispatch",
    "void dpsk::ep::internode::notify_dispatch<false, 8>(int const*, long*)": "",
    "void fcollect_on_stream_kernel<int, ...>(int, int*, int const*)": "",
    "hcom_allReduce__428_0_1": _ALL_REDUCE,
}
NOT_FOUND = (
    "triton_poi_fused_nccl_0",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(x)",
    "void oneflow::SoftmaxBlockAllReduce<float>(x)",
    "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*)",
    "void deep_ep::elastic::combine_reduce_epilogue_impl<1>(void*)",
    "void vllm::reshape_and_cache_kernel<float>(x)",
    "void (anonymous namespace)::dispatchKernel<float>(float*)",
    "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*>>(x)",
    "void (anonymous namespace)::groupnorm_kernel_dispatch_up<__hip_bfloat16, 1024u>(x)",
    "_combined_routing_compute",
    "symm_mem::fused_all_gather_matmul",
    "symm_mem::memset32_",
    "_ZN9999abc",
    "",
)


@pytest.mark.parametrize(("name", "what"), FOUND.items())
def test_a_kernel_that_communicates_says_what_it_does(name: str, what: str) -> None:
    assert is_communication(name)
    assert collective_name(name) == what


@pytest.mark.parametrize("name", NOT_FOUND)
def test_what_only_sounds_like_communication_is_none(name: str) -> None:
    assert not is_communication(name)
    assert collective_name(name) == ""


@pytest.mark.parametrize("row", [*OPS, *KERNELS])
def test_each_row_takes_its_example_and_no_other_row_does(row: CommunicationNames) -> None:
    assert [each for each in (*OPS, *KERNELS) if takes(each, row.example)] == [row]
    assert "/" in row.source and ": " in row.source


def takes(row: CommunicationNames, name: str) -> bool:
    return re.match(row.pattern, name.removeprefix("void ")) is not None


def test_a_range_says_what_the_messages_within_it_are() -> None:
    reported = {name: op_collective(name) for name in ("nccl:all_to_all", "c10d::send", "aten::mm")}
    assert reported == {"nccl:all_to_all": "all_to_all", "c10d::send": "send", "aten::mm": ""}


def test_the_range_tells_an_all_to_all_from_messages() -> None:
    kernel = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    around = ("nccl:all_to_all", "nccl:coalesced", "nccl:send", "aten::mm", "")
    reported = [collective_name(kernel, each) for each in around]
    assert reported == ["all_to_all", "sendrecv", "send", "", ""]


def test_a_user_adds_names_and_any_text(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ("void mine::ring_sum<float>(float*)", "my_lib::exchange", "exchange", "other")
    monkeypatch.delenv(VARIABLE, raising=False)
    assert [is_communication(name) for name in own] == [False] * 4
    monkeypatch.setenv(VARIABLE, " ring_sum ; my_lib::* ;; exchange*")
    assert [is_communication(name) for name in own] == [True, True, True, False]
    monkeypatch.setenv(VARIABLE, "ring_*(float*)")
    assert [is_communication(name) for name in own] == [False] * 4


def test_brackets_and_dots_of_a_name_mean_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "k<1>(a.b)[clone .0]")
    assert is_communication("void k<1>(a.b)[clone .0]")
    assert not is_communication("void k<1>(acb)[clone .0]")
