"""The flaws: what is wrong, who says so, and which cause a right recommendation names.

Each flaw is a builder of the same name in `verification/flaws/programs`, which makes the flawed
or the remedied step of one program. The lines to name end in a comment `# flaw: NAME`.
"""

from __future__ import annotations

from .eighth_catalogue import EIGHTH
from .eleventh_catalogue import ELEVENTH
from .fifth_catalogue import FIFTH
from .flaw import GITHUB, TORCH_DOCS, Flaw, Source, thread
from .fourteenth_threads import FOURTEENTH
from .fourth_catalogue import FOURTH
from .ninth_catalogue import NINTH
from .second_catalogue import SECOND
from .seventh_catalogue import SEVENTH
from .sixth_catalogue import SIXTH
from .tenth_catalogue import TENTH
from .third_catalogue import THIRD
from .thirteenth_pages import PAGES
from .thirteenth_threads import THREADS
from .twelfth_catalogue import TWELFTH

__all__ = ["FIRST", "FLAWS", "LATER", "NOT_JUDGED", "Flaw", "Source"]


_TUTORIALS = "https://docs.pytorch.org/tutorials"
TUNING = Source("Performance Tuning Guide", f"{_TUTORIALS}/recipes/recipes/tuning_guide.html")
NANOGPT = Source("nanoGPT, model.py", f"{GITHUB}/karpathy/nanoGPT/blob/master/model.py")
NANOGPT_TRAIN = Source("nanoGPT, train.py", f"{GITHUB}/karpathy/nanoGPT/blob/master/train.py")
MATMUL = Source(
    "NVIDIA, Matrix Multiplication Background User's Guide",
    "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html",
)
SDPA = Source(
    "scaled_dot_product_attention",
    f"{TORCH_DOCS}/generated/torch.nn.functional.scaled_dot_product_attention.html",
)
HF_TRAIN = Source(
    "Transformers, GPU (training on one GPU)",
    "https://huggingface.co/docs/transformers/perf_train_gpu_one",
)
HF_LLM = Source(
    "Transformers, Optimizing inference",
    "https://huggingface.co/docs/transformers/main/llm_optims",
)
LIGHTNING = Source(
    "Lightning, Speed Up Model Training",
    "https://lightning.ai/docs/pytorch/stable/advanced/speed.html",
)
AMP = Source("Automatic Mixed Precision package", f"{TORCH_DOCS}/amp.html")
CUDA = Source("CUDA semantics", f"{TORCH_DOCS}/notes/cuda.html")
GPT_FAST = Source(
    "Accelerating Generative AI with PyTorch II: GPT, Fast",
    "https://pytorch.org/blog/accelerating-generative-ai-2/",
)
MODDED = Source("modded-nanogpt", f"{GITHUB}/KellerJordan/modded-nanogpt")
OPTIM = Source("torch.optim, performance of implementations", f"{TORCH_DOCS}/optim.html")


PRODUCTS = (
    Flaw(
        "vocabulary_size",
        NANOGPT,
        "GPT-2's vocabulary of 50257 is not padded to a multiple of 64",
        "the product of the output layer is slow for its size: pad the vocabulary",
        differs="padding adds logits",
    ),
    Flaw(
        "odd_mlp_width",
        MATMUL,
        "the width of the MLP, 3071, is no multiple of 8: products fall off the aligned kernels",
        "products are slow for their size or alignment: pad the width",
        differs="one more hidden unit",
    ),
    Flaw(
        "head_dim_alignment",
        SDPA,
        "heads of 52 channels: no multiple of 8, so attention pads or takes a slower kernel",
        "attention is slow for its head dimension: make it a multiple of 8, or 64",
        differs="other heads",
    ),
    Flaw(
        "micro_batches_of_one",
        HF_TRAIN,
        "gradients are accumulated over sequences of one, though the batch fits in memory",
        "launch-bound, or products too small: larger micro-batches",
        anywhere=True,
    ),
    Flaw(
        "table_per_feature",
        thread("DLRM, apply_emb", "facebookresearch/dlrm/blob/main/dlrm_s_pytorch.py"),
        "an embedding table for each of 64 features, looked up in a list comprehension",
        "many small launches from one line: merge the tables into one",
    ),
)

ATTENTION = (
    Flaw(
        "boolean_mask",
        thread(
            "FlashAttention actually does not support attention mask", "cvg/LightGlue/issues/116"
        ),
        "a causal mask is given as a boolean tensor: flash attention takes no mask",
        "attention took a slower kernel because of the mask: is_causal=True",
    ),
    Flaw(
        "additive_mask",
        thread("Drop mask for training in all cases", "huggingface/optimum/pull/1250"),
        "a causal mask of zeros and -inf is expanded to batch and heads and given as a tensor",
        "attention took a slower kernel because of the mask: is_causal=True",
    ),
    Flaw(
        "fp32_attention",
        SDPA,
        "queries, keys and values are cast to float32 before attention, out of autocast",
        "attention in float32: run it in bfloat16",
    ),
    Flaw(
        "naive_attention",
        thread("Implement torch SDPA for FlashAttention Kernel", "karpathy/nanoGPT/pull/102"),
        "attention by matmul, masked_fill, softmax and matmul",
        "attention that is not fused: scaled_dot_product_attention",
    ),
    Flaw(
        "wide_heads",
        SDPA,
        "heads of 384 channels: the flash kernel ends at 256",
        "attention took a slower kernel because of the head dimension: smaller heads",
        differs="other heads",
    ),
    Flaw(
        "need_weights",
        thread(
            "nn.MultiheadAttention doesn't use efficient scaled_dot_product_attention",
            "pytorch/pytorch/issues/100347",
        ),
        "nn.MultiheadAttention is called with need_weights=True and its weights are dropped",
        "attention that is not fused: need_weights=False",
    ),
    Flaw(
        "head_loop",
        thread("ng-video-lecture, gpt.py", "karpathy/ng-video-lecture/blob/master/gpt.py"),
        "each head is a module of its own, in a Python loop",
        "many small launches, or attention that is not fused: one product for all heads",
        differs="other initial weights",
    ),
    Flaw(
        "contiguous_copies",
        thread(
            "Transformers 4.46, GPT2SdpaAttention",
            "huggingface/transformers/blob/v4.46.0/src/transformers/models/gpt2/modeling_gpt2.py",
        ),
        "queries, keys and values are split, transposed and made contiguous in every layer",
        "copies that change only the layout: drop .contiguous()",
    ),
    Flaw(
        "position_bias_indexing",
        thread(
            "Gather backward is faster than integer indexing on GPU",
            "pytorch/pytorch/issues/15245",
        ),
        "Swin's relative position bias is looked up by indexing, whose backward sorts",
        "the backward of indexing is slow: index_select or embedding",
    ),
)

DTYPES = (
    Flaw(
        "no_tf32",
        CUDA,
        "float32 products without TF32",
        "float32 products: set_float32_matmul_precision('high')",
        anywhere=True,
    ),
    Flaw(
        "no_autocast",
        AMP,
        "training in float32, with TF32 but without autocast",
        "float32 products or traffic: autocast to bfloat16",
        anywhere=True,
    ),
    Flaw(
        "norm_by_hand",
        thread("Llama, RMSNorm", "meta-llama/llama/blob/main/llama/model.py"),
        "RMSNorm of five float32 operations in eager code",
        "elementwise operations and casts that are not fused: F.rms_norm or compile",
    ),
    Flaw(
        "gelu_by_hand",
        TUNING,
        "GELU written as 0.5 x (1 + tanh(...)), a kernel for each operation",
        "elementwise operations that are not fused: F.gelu or compile",
    ),
    Flaw(
        "fp64_rotary",
        Source("Tensor attributes, type promotion", f"{TORCH_DOCS}/tensor_attributes.html"),
        "rotary tables come from numpy in float64 and promote queries and keys in every layer",
        "float64 arithmetic, or casts: tables in the dtype of the model",
    ),
    Flaw(
        "casts_each_microstep",
        NANOGPT_TRAIN,
        "autocast casts all weights again in each of four micro-steps",
        "casts of weights: bfloat16 weights, or one autocast around the micro-steps",
        differs="weights are rounded",
    ),
    Flaw(
        "logits_in_fp32",
        thread(
            "Transformers, loss_utils.py",
            "huggingface/transformers/blob/main/src/transformers/loss/loss_utils.py",
        ),
        "logits are cast to float32, shifted and copied before an eager loss",
        "the loss is not fused, or casts and copies of logits: compile the loss",
    ),
    Flaw(
        "one_hot_targets",
        Source(
            "CrossEntropyLoss, performance with class indices",
            f"{TORCH_DOCS}/generated/torch.nn.CrossEntropyLoss.html",
        ),
        "targets are one-hot probabilities over the vocabulary",
        "elementwise work over one-hot targets: class indices",
    ),
)

CONVOLUTIONS = (
    Flaw(
        "channels_first",
        Source(
            "Channels Last Memory Format in PyTorch",
            f"{_TUTORIALS}/intermediate/memory_format_tutorial.html",
        ),
        "a ResNet in bfloat16 in NCHW: convolutions transpose their inputs",
        "layout conversions around convolutions: channels_last",
    ),
    Flaw(
        "benchmark_off",
        TUNING,
        "cudnn.benchmark is off with float32 convolutions of fixed sizes",
        "convolution algorithms: cudnn.benchmark",
        anywhere=True,
    ),
    Flaw(
        "bias_before_norm",
        TUNING,
        "convolutions before batch norm have a bias, which the norm subtracts",
        "the bias before a normalisation is useless: bias=False",
        differs="other initial weights",
    ),
)

OPTIMIZERS = (
    Flaw(
        "optimizer_per_parameter",
        OPTIM,
        "AdamW with foreach=False: a dozen launches for each parameter",
        "the optimizer runs parameter by parameter: fused=True or foreach=True",
    ),
    Flaw(
        "clipping_loop",
        thread("Foreach gradient clipping", "pytorch/pytorch/pull/91846"),
        "gradients are clipped in a loop over parameters",
        "a loop over parameters: clip_grad_norm_ with foreach=True",
    ),
    Flaw(
        "ema_loop",
        thread("Optimized EMA implementation", "pytorch/pytorch/pull/94820"),
        "the moving average of the weights is updated in a loop over parameters",
        "a loop over parameters: torch._foreach_lerp_ or get_ema_multi_avg_fn",
    ),
    Flaw(
        "ema_of_copies",
        thread("Optimize parameter updating speed", "open-mmlab/mmengine/pull/281"),
        "each step deep-copies the state dict and mixes it into the average key by key",
        "copies of the weights and a loop over parameters: torch._foreach_lerp_",
    ),
    Flaw(
        "grad_norms_logged",
        thread("Slow clip_grad_norm_ because of .item()", "pytorch/pytorch/issues/31474"),
        "the gradient norm of each parameter is logged by .item()",
        "the CPU waits for the GPU in a loop over parameters: torch._foreach_norm, one copy",
    ),
    Flaw(
        "zeroed_gradients",
        TUNING,
        "zero_grad(set_to_none=False) writes zeros, and backward adds to them",
        "gradients are zeroed and added: set_to_none=True",
    ),
)

WAITS = (
    Flaw(
        "loss_item",
        LIGHTNING,
        "loss.item() after each of four micro-steps",
        "the CPU waits for the GPU: keep the loss on the device",
    ),
    Flaw(
        "nan_check_per_layer",
        thread(
            "Avoid CUDA->CPU sync by removing tensor.bool", "lucidrains/x-transformers/pull/355"
        ),
        "`if x.isnan().any()` in each layer",
        "the CPU waits for the GPU: check once per step, or on the device",
    ),
    Flaw(
        "masked_loss_per_class",
        thread("Certain operations cause implicity sync-points", "pytorch/pytorch/issues/12461"),
        "the loss of each of 32 classes is taken by indexing with a boolean mask",
        "the CPU waits for the GPU (nonzero): weights in place of indexing",
    ),
    Flaw(
        "predictions_to_cpu",
        Source(
            "A guide on good usage of non_blocking and pin_memory()",
            f"{_TUTORIALS}/intermediate/pinmem_nonblock.html",
        ),
        "inference copies the outputs of each batch to the CPU and waits for them",
        "a blocking copy to the CPU: pinned memory, non_blocking, or one copy at the end",
    ),
    Flaw(
        "expert_loop",
        thread(
            "MoE feed-forward performs 3 x num_experts device-to-host syncs",
            "jingyaogong/minimind/issues/835",
        ),
        "a loop over 16 experts finds the tokens of each by nonzero",
        "the CPU waits for the GPU (nonzero), or many small launches: sort tokens, batched product",
    ),
)

HOST = (
    Flaw(
        "noise_on_cpu",
        TUNING,
        "noise is drawn on the CPU and copied to the GPU",
        "idle while the CPU makes a tensor, or its copy: create it on the device",
        differs="another generator",
    ),
    Flaw(
        "tensor_from_lists",
        LIGHTNING,
        "torch.tensor of Python lists of tokens in each step",
        "idle while the CPU makes a tensor: keep the data in a tensor",
    ),
    Flaw(
        "loader_without_workers",
        TUNING,
        "a DataLoader without workers transforms images in the training process",
        "idle while waiting for the data loader: num_workers",
        differs="other crops",
    ),
    Flaw(
        "pageable_copies",
        TUNING,
        "a batch of 154 MB is copied from pageable memory",
        "the copy to the device: pinned memory and non_blocking",
    ),
    Flaw(
        "augmentation_on_cpu",
        thread("Kornia, augmentation on the GPU", "kornia/kornia"),
        "images are flipped, scaled and normalised on the CPU, in the training loop",
        "idle while the CPU prepares the batch: augment on the device or in workers",
        differs="other flips",
    ),
    Flaw(
        "empty_cache_each_step",
        LIGHTNING,
        "torch.cuda.empty_cache() in each step: memory is freed and allocated again",
        "idle at empty_cache: remove it",
    ),
    Flaw(
        "gc_each_step",
        thread(
            "torchtitan, GarbageCollection",
            "pytorch/torchtitan/blob/main/torchtitan/tools/utils.py",
        ),
        "gc.collect() in each step",
        "idle at gc.collect: call it rarely, or not",
    ),
    Flaw(
        "masks_from_host",
        TUNING,
        "each layer makes its mask on the CPU and copies it to the GPU",
        "copies to the device, or idle while the CPU makes a tensor: a buffer on the device",
    ),
    Flaw(
        "positions_rebuilt",
        thread("Llama, precompute_freqs_cis", "meta-llama/llama/blob/main/llama/model.py"),
        "each layer computes the rotary tables anew",
        "many small launches or repeated work: compute the tables once",
    ),
)

SETTINGS = (
    Flaw(
        "checkpoint_everything",
        TUNING,
        "every block is checkpointed though memory is free",
        "recomputation of activations: checkpoint fewer blocks",
    ),
    Flaw(
        "anomaly_detection",
        TUNING,
        "anomaly detection is left on",
        "anomaly detection (checks of each gradient, waits): turn it off",
        anywhere=True,
    ),
    Flaw(
        "memory_history",
        Source("Understanding CUDA Memory Usage", f"{TORCH_DOCS}/torch_cuda_memory.html"),
        "the memory history with stacks is left on",
        "launch-bound, the CPU records stacks: turn it off",
        anywhere=True,
    ),
    Flaw(
        "deterministic_algorithms",
        Source("Reproducibility", f"{TORCH_DOCS}/notes/randomness.html"),
        "deterministic algorithms are left on: index_add sorts",
        "a deterministic kernel is slow (index_add or index_put): turn the setting off",
    ),
)

LOOPS = (
    Flaw(
        "dense_embedding_gradients",
        Source("Embedding, sparse", f"{TORCH_DOCS}/generated/torch.nn.Embedding.html"),
        "a table of 8 million rows has dense gradients, of which a batch touches few",
        "zeroing and updating a gradient of the whole table: sparse=True",
    ),
    Flaw(
        "lstm_cell_loop",
        Source("LSTM", f"{TORCH_DOCS}/generated/torch.nn.LSTM.html"),
        "an LSTM is a Python loop over time steps with LSTMCell",
        "many small launches, launch-bound: nn.LSTM",
    ),
    Flaw(
        "graph_breaks",
        Source(
            "torch.compile Troubleshooting", f"{TORCH_DOCS}/torch.compiler_troubleshooting.html"
        ),
        "a compiled model logs an activation by .item() in each block, which breaks its graph",
        "graph breaks, or the CPU waits for the GPU: log on the device",
    ),
    Flaw(
        "changing_sizes",
        Source("Dynamic Shapes", f"{TORCH_DOCS}/torch.compiler_dynamic_shapes.html"),
        "a compiled function meets a new size in each step; at the recompile limit it runs eagerly",
        "recompilation, or eager code that was to be compiled: dynamic=True",
    ),
)

INFERENCE = (
    Flaw(
        "padding_to_maximum",
        Source(
            "Transformers, Padding and truncation",
            "https://huggingface.co/docs/transformers/pad_truncation",
        ),
        "sequences of at most 384 tokens are padded to 1024",
        "most tokens are padding: pad to the longest of the batch",
        anywhere=True,
    ),
    Flaw(
        "no_kv_cache",
        HF_LLM,
        "each new token runs the model over the whole sequence again",
        "repeated work on the same tokens: a cache of keys and values",
    ),
    Flaw(
        "growing_cache",
        thread(
            "Experiment with static past key/value buffer", "huggingface/transformers/pull/24115"
        ),
        "torch.cat copies the cache of keys and values for each token",
        "copies of the cache: a preallocated buffer",
    ),
    Flaw(
        "eager_decode",
        GPT_FAST,
        "single tokens are decoded by eager code: the GPU waits for launches",
        "launch-bound: CUDA graphs, compile with reduce-overhead",
        anywhere=True,
    ),
    Flaw(
        "gradients_in_inference",
        TUNING,
        "inference without no_grad records a graph",
        "autograd records in inference, or casts of weights: torch.no_grad, inference_mode",
    ),
    Flaw(
        "transposed_weights",
        Source("Linear", f"{TORCH_DOCS}/generated/torch.nn.functional.linear.html"),
        "weights are transposed and made contiguous in every call",
        "copies that change only the layout: F.linear, or keep the transposed weight",
    ),
)

FIRST = {
    flaw.name: flaw
    for group in (
        PRODUCTS,
        ATTENTION,
        DTYPES,
        CONVOLUTIONS,
        OPTIMIZERS,
        WAITS,
        HOST,
        SETTINGS,
        LOOPS,
        INFERENCE,
    )
    for flaw in group
}
"""The flaws of the first collection."""

THIRTEENTH = PAGES | THREADS
LATER = (
    *(SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH, TENTH, ELEVENTH, TWELFTH),
    *(THIRTEENTH, FOURTEENTH),
)
"""The collections after the first, each made after the rules that it judges."""
FLAWS = {name: flaw for each in (FIRST, *LATER) for name, flaw in each.items()}

NOT_JUDGED = {
    "DDP without no_sync while gradients are accumulated": "several GPUs",
    "find_unused_parameters left on": "several GPUs",
    "all_reduce of the loss in each step, waited for": "several GPUs",
    "DataParallel in place of DistributedDataParallel": "several GPUs",
    "SyncBatchNorm with large batches": "several GPUs",
    "FSDP without prefetch": "several GPUs",
    "a profiler left on": "it excludes the profiler that judges",
}
"""Flaws that were collected and are not run here, with the reason."""
