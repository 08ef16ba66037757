"""The fifth collection of flaws, which no rule was written for before it had run.

It was made by somebody who had read the first four catalogues and a few of their programs for the
form, and neither the rules nor the results, but who saw the names of three rules in `test_flaws`.
Threads on speed were searched, first for any, then by field (speech, agents, graphs, detection,
generators, molecules) and by operation, and were taken as they came unless their cause was there
already in a like model. Most are of one operation whose kernel is slow for its shape or its data,
of a loop in Python, or of work that need not be done; some ten have a cause of an earlier
collection in another model. A change of the learning rate that recompiled an optimizer was dropped:
it compiles twice with the torch of today.
"""

from __future__ import annotations

from .flaw import Flaw, thread

__all__ = ["FIFTH"]

SPEECH = (
    Flaw(
        "durations_in_loop",
        thread("Fast length regulator.", "axelspringer/ForwardTacotron/pull/2"),
        "each phoneme is stretched to its frames by itself, by an int of the GPU",
        "the CPU waits for the GPU in a loop over phonemes, many small launches: repeat_interleave",
    ),
    Flaw(
        "scores_copied_for_argmax",
        thread("Consider refactoring CTC greedy decoding", "NVIDIA-NeMo/Speech/issues/8891"),
        "the scores of all word pieces of all frames are copied to the CPU, which seeks the best",
        "a large blocking copy to the CPU, idle while the CPU seeks: argmax on the device, copy "
        "labels",
    ),
    Flaw(
        "resampling_kernel_each_call",
        thread("Precompute transforms.Resample kernel", "pytorch/audio/pull/1499"),
        "each step computes the 160 windowed sinc functions of a resampling again",
        "repeated work with the same result, many small launches: compute the kernel once",
    ),
    Flaw(
        "projections_apart",
        thread("[Whisper ASR] Fuse attention projections", "sgl-project/sglang-omni/pull/1620"),
        "queries, keys and values of a few tokens are three products of one input",
        "small products beside each other, launch-bound: one product for all, or a CUDA graph",
    ),
)

AGENTS = (
    Flaw(
        "lengths_in_python",
        thread(
            "[RLlib] Use PyTorch vectorized max() and sum() in SampleBatch.__init__ when possible",
            "ray-project/ray/pull/28388",
        ),
        "Python's max and sum run over a tensor of lengths on the GPU, element by element",
        "the CPU waits for the GPU for each element, many small launches: lengths.max() and sum()",
    ),
    Flaw(
        "encoder_for_each_head",
        thread("low GPU usage while training with PPO", "thu-ml/tianshou/issues/483"),
        "actor and critic share an encoder, which runs for each of them",
        "repeated work on the same input, a module that runs twice: share its features",
    ),
    Flaw(
        "advantages_per_token",
        thread(
            "perf(ppo): vectorize GAE when gamma and lambda are one", "NVIDIA-NeMo/RL/pull/4156"
        ),
        "advantages are added up token by token, from the last to the first",
        "many small launches from a loop, launch-bound: a cumulative sum",
    ),
    Flaw(
        "logsumexp_by_row",
        thread(
            "perf(utils): vectorise selective_log_softmax for all dtypes",
            "huggingface/trl/pull/7125",
        ),
        "the log-probabilities of 384 texts are computed text by text",
        "many small launches from a loop, launch-bound: all texts at once",
    ),
    Flaw(
        "weights_quantized_each_call",
        thread(
            "Quantization of the weights can be performed explicitly after training",
            "IBM/aihwkit-lightning/pull/23",
        ),
        "inference rounds all weights to 8 bits in each call",
        "repeated work with the same result, elementwise work on weights: round them once",
    ),
)

LOOKUPS = (
    Flaw(
        "interactions_over_time",
        thread(
            "2.2x speedup - vectorize for loop in TBSM_Net.forward", "facebookresearch/tbsm/pull/1"
        ),
        "a DLRM runs for each of 20 events of a user in a loop",
        "many small launches from a loop, launch-bound: all events in one batch",
    ),
    Flaw(
        "repeated_to_match",
        thread("replacing .repeat(...) with .expand(...)", "kornia/kornia/pull/2059"),
        "vectors of interests and candidates are repeated for each other before they are added",
        "copies by repeat: broadcasting, or expand",
    ),
    Flaw(
        "embedding_max_norm",
        thread("Embedding max_norm option slow with CUDA", "pytorch/pytorch/issues/1278"),
        "each of four lookups normalizes again the rows that it looks up",
        "embedding_renorm_, with a sort of its indices and a wait: renormalize once in each step",
    ),
    Flaw(
        "contended_embedding",
        thread(
            "nn.Embedding backwards slow under high row contention", "pytorch/pytorch/issues/20655"
        ),
        "half a million bases look up a table of five rows, whose backward sums them row by row",
        "the backward of the embedding is slow for its few rows: a product with one-hot vectors",
    ),
    Flaw(
        "einsum_of_rows",
        thread(
            "`einsum` is about 40x slower than manually multiplying and summing",
            "pytorch/pytorch/issues/101249",
        ),
        "einsum multiplies a million pairs of short rows as a batch of products of one number",
        "products are slow for their shape: multiply and sum",
    ),
    Flaw(
        "matmul_broadcast",
        thread(
            "Broadcasting matmul is much slower than corresponding einsum",
            "pytorch/pytorch/issues/110858",
        ),
        "matmul copies the weights of 32 sensors for each sample, to multiply them by one vector",
        "copies of weights by broadcasting, products slow for their shape: einsum, or bmm over "
        "sensors",
    ),
)

RENDERING = (
    Flaw(
        "few_groups_norm",
        thread(
            "perf: fp16 normalization speedups for PLKSR, NAFNet, SPAN",
            "chaiNNer-org/spandrel/pull/332",
        ),
        "group norm of one large image in four groups, which keeps four blocks busy, and copies",
        "the kernel of group norm is slow for its shape, or layout conversions: var_mean by hand",
    ),
    Flaw(
        "modulated_by_groups",
        thread("Why group number equals to batch size?", "rosinality/stylegan2-pytorch/issues/167"),
        "each image has weights of its own, as a group of a grouped convolution",
        "grouped convolutions are slow, weights are made for each image: scale inputs and outputs",
    ),
    Flaw(
        "penalty_each_step",
        thread("R1, R2 computing too slow", "brownvc/R3GAN/issues/9"),
        "the slope of a critic is penalized in each step, which runs backward twice",
        "double backward, a penalty in each step: every eighth step",
        differs="the penalty is there in each eighth step, eight times as large",
    ),
    Flaw(
        "perceptual_with_gradients",
        thread("perceptual loss pretrained", "KupynOrest/DeblurGAN/issues/77"),
        "a fixed VGG of a loss computes gradients of its weights, also for the sharp image",
        "gradients that nobody reads: requires_grad_(False) for the VGG",
    ),
)

SCENES = (
    Flaw(
        "anchors_on_cpu",
        thread(
            "有关detection subnet training 生成anchor速度的问题",
            "LiMeng95/MultiPoseNet.pytorch/issues/6",
        ),
        "the anchors of all levels are made by numpy in each step and copied to the GPU",
        "idle while the CPU makes a tensor, or its copy; repeated work: keep the anchors",
    ),
    Flaw(
        "bilinear_in_bfloat16",
        thread(
            "upsample_bilinear backward is supper slow in bf16 as compared to fp32",
            "pytorch/pytorch/issues/140096",
        ),
        "scores of 64 classes are enlarged in bfloat16, whose backward adds atomically",
        "the kernel of interpolate's backward is slow in bfloat16: enlarge in float32",
    ),
    Flaw(
        "cudnn_disabled",
        thread("Why 'cudnn.enabled = False'?", "speedinghzl/Pytorch-Deeplab/issues/1"),
        "cuDNN is turned off",
        "convolutions without cuDNN, slow kernels: torch.backends.cudnn.enabled = True",
        anywhere=True,
    ),
    Flaw(
        "mask_loss_per_image",
        thread("YOLOv5 segmentation model support", "ultralytics/yolov5/pull/9052"),
        "the masks of the instances of each image are compared image by image",
        "the CPU waits for the GPU (unique, nonzero), or many small launches from a loop: one "
        "batched product",
    ),
    Flaw(
        "positions_per_shape",
        thread("Naflex performance", "huggingface/pytorch-image-models/issues/2514"),
        "the positions of a ViT are resized for each image in a loop",
        "many small launches from a loop, launch-bound: grid_sample for all images",
    ),
    Flaw(
        "quantile_normalization",
        thread(
            "Normalization time increases drastically as images increase in size",
            "instanseg/instanseg/issues/35",
        ),
        "each channel of a megapixel image is sorted for two of its percentiles",
        "sorting in quantile, in a loop: percentiles of a sample of the pixels",
        differs="percentiles of every 64th pixel",
    ),
)

ATOMS = (
    Flaw(
        "padding_at_one_index",
        thread("Speed up PET backward indexing", "metatensor/metatrain/pull/828"),
        "half of an index is padding that points to row 0, which backward adds up one by one",
        "the backward of indexing is slow for an index that repeats: let padding point to itself, "
        "or index_select",
    ),
    Flaw(
        "constants_from_host",
        thread(
            "pt: avoid torch.tensor(constant) during forward", "deepmodeling/deepmd-kit/pull/3421"
        ),
        "each layer makes a tensor of a constant on the CPU and copies it to the GPU",
        "small blocking copies to the device, the CPU waits for the GPU: numbers of Python",
    ),
    Flaw(
        "small_qr",
        thread(
            "torch.linalg.qr is significantly slower on GPU compared to CPU and SVD for batched "
            "small matrices",
            "pytorch/pytorch/issues/143281",
        ),
        "1536 rotations are made from two columns by QR, which launches for each matrix",
        "linalg.qr is slow for many small matrices, many small launches: Gram-Schmidt by hand",
    ),
)

ADAPTING = (
    Flaw(
        "head_in_float32",
        thread(
            "25% less mem and 10% faster training: Do not upcast lm_head and embedding to float32",
            "unslothai/unsloth/pull/1186",
        ),
        "the head of a model in bfloat16 is in float32",
        "float32 products: the head in bfloat16, or TF32",
    ),
    Flaw(
        "norms_in_float32",
        thread(
            "How much positive outcome --upcast_layernorm=True give for the output LoRA model?",
            "hiyouga/LlamaFactory/issues/2241",
        ),
        "the norms of a model in bfloat16 run in float32, between casts",
        "casts to float32 and back around norms, elementwise work in float32: norms in bfloat16",
    ),
)

FIFTH = {
    flaw.name: flaw
    for group in (SPEECH, AGENTS, LOOKUPS, RENDERING, SCENES, ATOMS, ADAPTING)
    for flaw in group
}
