"""The names by which libraries' ops and kernels communicate, and those that a user adds.

Any other name is computation. Where a library's names are ambiguous, a row has more of the
signature; a kernel that only prepares a collective, or works on its result, has no row.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache

_ANY = r"(?:[\w() ]+::)*"  # the namespaces of a function
# More names of communication, separated by ``;``; ``*`` matches any text
VARIABLE = "PROFILER_EXT_COMMUNICATION"
MESSAGES = "sendrecv"  # what a kernel does that sends or receives, as its name has it
_COALESCED = "coalesced"
_CACHE_SIZE = 1 << 14
_RESULT = re.compile(r"(?:static )?(?:void|bool|int) (?=[\w(])")
_MANGLED = re.compile(r"_ZN?K?(?=\d)")
_PIECE = re.compile(r"(\d{1,4})")


@dataclass(frozen=True, slots=True)
class CommunicationNames:
    """Names by which one library communicates."""

    library: str
    # Matches a name's begin; a kernel's without its result type. Its group ``what`` is the
    # collective, where the name has it.
    pattern: str
    what: str  # the collective, if it is the same for all names
    example: str  # one such name
    source: str  # where the names are defined: repository and file


# Ops and ranges of the CPU
OPS = (
    CommunicationNames(
        "torch.distributed",
        r"(?:nccl|gloo|mpi|ucc|xccl|hccl):(?P<what>\w*)",
        "",
        "nccl:all_reduce",
        "pytorch/pytorch: torch/csrc/distributed/c10d/ProcessGroup*.cpp (a backend's own name "
        "before the colon; HCCL's in mtia_rank_0.json.gz of "
        "facebookresearch/HolisticTraceAnalysis)",
    ),
    CommunicationNames(
        "torch.distributed",
        r"(?:(?:c10d|_?c10d_functional(?:_autograd)?)::(?P<what>\w*)"
        r"|_dtensor::shard_dim_alltoall)(?![\w:])",
        "",
        "c10d::allreduce_",
        "pytorch/pytorch: torch/csrc/distributed/c10d/Ops.cpp, Functional.cpp",
    ),
    CommunicationNames(
        "torch symmetric memory",
        r"symm_mem::(?:multimem_|one_shot_|two_shot_|reduce_scatter|all_to_all|nvshmem_)",
        "",
        "symm_mem::multimem_all_reduce_",
        "pytorch/pytorch: torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.cpp",
    ),
    CommunicationNames(
        "vLLM",
        r"vllm::(?:all_reduce|all_gather|reduce_scatter)\b",
        "",
        "vllm::all_reduce",
        "vllm-project/vllm: vllm/distributed/parallel_state.py",
    ),
    CommunicationNames(
        "oneCCL bindings",
        r"oneccl_bindings_for_pytorch::",
        "",
        "oneccl_bindings_for_pytorch::allreduce",
        "intel/torch-ccl: src/ProcessGroupCCL.cpp",
    ),
    CommunicationNames(
        "HCCL of Ascend",
        r"Hccl[A-Z]",
        "",
        "HcclAllreduce",
        "Ascend/pytorch: torch_npu/csrc/distributed/ProcessGroupHCCL.cpp",
    ),
)
# Kernels of a device
KERNELS = (
    CommunicationNames(
        "NCCL, RCCL",
        r"nccl\w*?Kernel(?:Debug)?"
        r"(?:_(?!Generic)(?P<what>[A-Za-z]+)|_Generic|\w*)",
        "",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "NVIDIA/nccl: src/device/generate.py, src/device/symmetric/generate.py; ROCm/rccl: "
        "src/device/common.h",
    ),
    CommunicationNames(
        "MSCCL in RCCL",
        r"mscclKernel_",
        "",
        "mscclKernel_Sum_float_LL_true",
        "ROCm/rccl: src/include/msccl/msccl_kernel.h",
    ),
    CommunicationNames(
        "MSCCL++",
        r"mscclpp::(?:collective::)?(?:\(anonymous namespace\)::)?"
        r"(?:(?P<what>all(?:reduce|gather))|executionKernel\b)",
        "",
        "void mscclpp::collective::allgatherFullmesh2<true>(void*, ...)",
        "microsoft/mscclpp: src/ext/collectives, src/core/include/execution_kernel.hpp",
    ),
    CommunicationNames(
        "torch symmetric memory",
        _ANY + r"(?:multimem_(?:one_shot_)?|one_shot_)(?P<what>all_(?:reduce|gather))_kernel\b",
        "",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(...)",
        "pytorch/pytorch: torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu",
    ),
    CommunicationNames(
        "torch symmetric memory",
        _ANY + r"two_shot_(?P<what>all_reduce)_kernel"
        r"(?:_inplace\b|<[^<>()]*, \d+, -?\d+(?:>|, false))",
        "",
        "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16, 8>(...)",
        "pytorch/pytorch: torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu",
    ),
    CommunicationNames(
        "torch symmetric memory",
        _ANY + r"two_shot_all_reduce_kernel<[^<>()]*, \d+, -?\d+, true",
        "reducescatter",
        "void (anonymous namespace)::two_shot_all_reduce_kernel<float, 16, 8, true, false>(...)",
        "pytorch/pytorch: torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu "
        "(`reduce_scatter_out`)",
    ),
    CommunicationNames(
        "torch symmetric memory",
        r"c10d::symmetric_memory::(?:\(anonymous namespace\)::)?"
        r"(?:(?P<what>barrier)|(?:put|wait)_signal)_kernel\b",
        "",
        "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)",
        "pytorch/pytorch: torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemory.cu",
    ),
    CommunicationNames(
        "torch symmetric memory, by NVSHMEM",
        r"c10d::nvshmem_extension::(?:(?P<what>allToAll)V|exchangeSplitAndOffset)",
        "",
        "c10d::nvshmem_extension::allToAllV(void*, void*, long*, unsigned long, int, int)",
        "pytorch/pytorch: torch/csrc/distributed/c10d/symm_mem/nvshmem_extension.cu",
    ),
    CommunicationNames(
        "torch's intra-node all-reduce, TensorRT-LLM",
        _ANY + r"(?:oneShot|twoShot|hybridCubeMesh)(?P<what>AllReduce)Kernel\b",
        "",
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8, true>(...)",
        "pytorch/pytorch: torch/csrc/distributed/c10d/intra_node_comm.cu; NVIDIA/TensorRT-LLM: "
        "cpp/tensorrt_llm/kernels/customAllReduceKernels.cu",
    ),
    CommunicationNames(
        "TensorRT-LLM, FlashInfer, SGLang, AITER: all-reduce with a norm",
        _ANY + r"(?:\w*allreduce_fusion_kernel_\w+"
        r"|(?:lamport_style_)?one_shot_(?:prenorm_)?all_reduce_norm_kernel"
        r"|oneshotAllreduceFusionKernel|twoshotAllreduceKernel)\b",
        "allreduce",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<...>()",
        "flashinfer-ai/flashinfer: include/flashinfer/comm/trtllm_*allreduce*.cuh; "
        "NVIDIA/TensorRT-LLM: cpp/tensorrt_llm/kernels/communicationKernels",
    ),
    CommunicationNames(
        "vLLM, SGLang, AITER",
        _ANY + r"cross_device_reduce_\w+",
        "allreduce",
        "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(...)",
        "vllm-project/vllm: csrc/custom_all_reduce.cuh; sgl-project/sglang: "
        "sgl-kernel/csrc/allreduce; ROCm/aiter: csrc/include/custom_all_reduce.cuh",
    ),
    CommunicationNames(
        "QuickReduce of vLLM and SGLang",
        r"quickreduce::allreduce_prototype_\w+",
        "allreduce",
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<...>, ...>()",
        "vllm-project/vllm: csrc/quickreduce/quick_reduce.h",
    ),
    CommunicationNames(
        "TensorRT-LLM, FlashInfer: expert parallelism",
        _ANY + r"moeA2A(?P<what>Dispatch|Combine)Kernel\b",
        "",
        "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<...>(...)",
        "NVIDIA/TensorRT-LLM: cpp/tensorrt_llm/kernels/communicationKernels/moeAlltoAllKernels.cu",
    ),
    CommunicationNames(
        "TensorRT-LLM, FlashInfer: all-to-all",
        _ANY + r"(?:moe|helix)(?P<what>AllToAll)Kernel\b",
        "",
        "void flashinfer::trtllm_alltoall::moeAllToAllKernel(...)",
        "flashinfer-ai/flashinfer: include/flashinfer/comm/trtllm_alltoall.cuh, "
        "csrc/nv_internal/tensorrt_llm/kernels/helixAllToAll.cu",
    ),
    CommunicationNames(
        "DeepEP, NCCL EP",
        r"(?:deep_ep|dpsk::ep|nccl_ep)::(?:\w+::)*(?:(?:hybrid_)?(?P<what>dispatch|combine)"
        r"(?:_impl)?|barrier(?:_impl)?|notify_dispatch|cached_notify\w*|clean_low_latency_buffer)"
        r"\b",
        "",
        "void deep_ep::internode::dispatch<false, 8, true, 8>(...)",
        "deepseek-ai/DeepEP: csrc/kernels, deep_ep/include/deep_ep/impls; "
        "deepseek-ai/profile-data: train.json; NVIDIA/nccl: contrib/nccl_ep",
    ),
    CommunicationNames(
        "pplx-kernels",
        r"(?:\(anonymous namespace\)::)?(?:(?P<what>dispatch)Kernel<\d+u?, \w+, \w+>\(int\*, "
        r"unsigned long, std::byte\*|combineKernel<[^<>]*, \d+ul, \w+, \w+>\([\w ]+\*, "
        r"unsigned long, unsigned int(?: const)?\*, unsigned long, unsigned long, float)",
        "",
        "void (anonymous namespace)::dispatchKernel<16u, true, true>(int*, unsigned long, "
        "std::byte*, ...)",
        "ppl-ai/pplx-kernels: csrc/all_to_all",
    ),
    CommunicationNames(
        "NVSHMEM",
        r"nvshmemi_\w*(?:reduce_kernel|on_stream_kernel|_entrypoint|signal_op_kernel)"
        r"|(?:(?P<what>alltoall|barrier|broadcast|reducescatter)|fcollect|rdxn|sync)"
        r"_on_stream_kernel",
        "",
        "void alltoall_on_stream_kernel<char, ...>(int, char*, char const*, ...)",
        "NVIDIA/nvshmem: src/include/internal/non_abi/nvshmemi_h_to_d_*_defs.cuh",
    ),
    CommunicationNames(
        "Transformer Engine: userbuffers",
        r"k?userbuffers_\w+",
        "",
        "kuserbuffers_pushrecv(int, int, int, int, int*, int*, int, int, unsigned long)",
        "NVIDIA/TransformerEngine: "
        "transformer_engine/common/comm_gemm_overlap/userbuffers/userbuffers.cu",
    ),
    CommunicationNames(
        "oneCCL",
        r"(?:typeinfo name for )?oneccl_(?:(?P<what>allreduce|allgather|alltoall|reduce_scatter"
        r"|broadcast)|invoke_barrier)\w*",
        "",
        "oneccl_alltoall_pcie<...>",
        "uxlfoundation/oneCCL: src/coll/algorithms",
    ),
    CommunicationNames(
        "HCCL of Ascend",
        r"hcom_(?P<what>[A-Za-z]+)_",
        "",
        "hcom_allReduce__428_0_1",
        "cann/hccl on gitcode.com: docs/zh/user_guide/perf_analysis/profiling_op_behavior.md",
    ),
)


_OF_OPS = [(re.compile(each.pattern), each) for each in OPS]
_OF_KERNELS = [(re.compile(each.pattern), each) for each in KERNELS]


def is_communication(name: str) -> bool:
    """Tell whether an op or a kernel communicates, as ``nccl:all_reduce`` and ``c10d::send``."""
    return _communicates(name, os.environ.get(VARIABLE, ""))


@lru_cache(_CACHE_SIZE)
def _communicates(name: str, added: str) -> bool:
    if any(pattern.match(name) for pattern, _ in _OF_OPS) or _kernel(name) is not None:
        return True
    forms = (name, _function(name))
    return any(pattern.match(form) for pattern in _added(added) for form in forms)


def collective_name(kernel: str, around: str = "") -> str:
    """Return a launch's collective, ``all_reduce``; ``""`` where unknown."""
    # around: the name of the range around its call: NCCL's all-to-all is a kernel of messages,
    # ``SendRecv``, and the range distinguishes it from a pipeline's (``nccl:coalesced``)
    operation, own = op_collective(around), _kernel_collective(kernel)
    if operation not in ("", _COALESCED):
        return operation
    return "" if own == MESSAGES and not operation else own


def _kernel_collective(name: str) -> str:
    candidates = _kernel(name)
    if candidates is None:
        return ""
    match, row = candidates
    operation = row.what or match.groupdict().get("what") or ""
    return operation.lower().replace("_", "")


def op_collective(name: str) -> str:
    """Return the collective that the name of an op or range has, ``all_reduce``, or ``""``."""
    candidates = (pattern.match(name) for pattern, _ in _OF_OPS)
    operation = (match.groupdict().get("what") for match in candidates if match is not None)
    return (next(operation, None) or "").strip("_")


def _kernel(name: str) -> tuple[re.Match[str], CommunicationNames] | None:
    function = _function(name)
    for pattern, row in _OF_KERNELS:
        if (match := pattern.match(function)) is not None:
            return match, row
    return None


def _function(name: str) -> str:
    """Return a kernel's name from its namespaces on; of a mangled one no more than these."""
    if (begins := _MANGLED.match(name)) is None:
        return name[result.end() :] if (result := _RESULT.match(name)) else name
    parts, at = [], begins.end()
    while (size := _PIECE.match(name, at)) is not None:
        at = size.end() + int(size[1])
        parts.append(name[size.end() : at])
    return "::".join("(anonymous namespace)" if p.startswith("_GLOBAL__N") else p for p in parts)


@lru_cache(8)
def _added(names: str) -> tuple[re.Pattern[str], ...]:
    """Return a pattern of the names that a user added, as ``--kernel`` reads one."""
    names_wanted = (each.strip() for each in names.split(";"))
    return tuple(map(_pattern_of, filter(None, names_wanted)))


def _pattern_of(name: str) -> re.Pattern[str]:
    any_text = name if "*" in name else f"*{name}*"
    return re.compile(".*".join(map(re.escape, any_text.split("*"))) + r"\Z", re.DOTALL)
