"""The sixth collection of flaws, which no rule was written for before it had run.

It was made by somebody who had read the fourth and the fifth catalogue, the names and words of the
first three, and a few programs for the form, and neither rules nor results. Threads on speed were
searched by field and by operation, and were taken as they came, unless their cause was there
already in a like model. Some twelve have a cause of an earlier collection in another model, as what
users meet repeats. Dropped were threads whose remedy is a kernel to be written or a library that is
not there, and a variable of the environment that cannot differ within one process.
"""

from __future__ import annotations

from .flaw import Flaw, thread

__all__ = ["SIXTH"]

MATCHING = (
    Flaw(
        "anchors_matched_on_cpu",
        thread(
            "Low-memory object to anchor assignment method",
            "facebookresearch/detectron2/issues/3750",
        ),
        "the overlaps of all anchors with the boxes of each image are computed on the CPU, to save "
        "memory that is free",
        "idle while the CPU computes, the CPU waits for copies: match anchors on the device",
    ),
    Flaw(
        "costs_of_other_images",
        thread(
            "perf(matcher): copy only the diagonal cost blocks to CPU before assignment",
            "roboflow/rf-detr/pull/1281",
        ),
        "the costs of all queries for the targets of all images are copied to the CPU, of which "
        "each image needs its own",
        "a large blocking copy to the CPU: take the blocks of each image on the device, copy those",
    ),
    Flaw(
        "disparities_in_loop",
        thread("Some Questions About CorrBlock.", "princeton-vl/SEA-RAFT/issues/13"),
        "a stereo network correlates both views disparity by disparity and writes to slices",
        "many small launches from a loop, or its elementwise products and writes to slices: one "
        "batched product for all",
    ),
    Flaw(
        "warp_grid_from_cpu",
        thread("IO consumption in flow warp", "open-mmlab/mmagic/issues/878"),
        "each warp of a frame makes its grid of pixels on the CPU and copies it to the GPU",
        "idle while the CPU makes a tensor, or its blocking copy: make the grid on the device, or "
        "once",
    ),
    Flaw(
        "topk_per_pixel",
        thread("GPU Synchronization issue with .topk", "pytorch/pytorch/issues/3396"),
        "an accuracy takes the three best of 150 classes of each of 410,000 pixels by topk",
        "topk is slow for so many short slices: count the classes that score higher than the right "
        "one, or measure rarely",
    ),
    Flaw(
        "layer_norm_2d_by_hand",
        thread(
            "[Performance] Speed of different LayerNorm2d implementations",
            "open-mmlab/mmpretrain/issues/931",
        ),
        "ConvNeXt's norm over channels is written out in a mean, a power, a root, and so on",
        "elementwise operations and reductions that are not fused: layer_norm with channels last, "
        "or compile",
    ),
    Flaw(
        "unfold_then_matmul",
        thread("unfold is much slow", "sair-lab/kervolution/issues/1"),
        "a polynomial kernel multiplies patches, which unfold writes out, by the weights",
        "unfold (im2col) and its backward write copies of the patches: conv2d computes the product",
    ),
)

COMPARING = (
    Flaw(
        "triplets_by_numpy",
        thread("TripletMarginLoss Performance", "KevinMusgrave/pytorch-metric-learning/issues/192"),
        "numpy draws a positive and a negative for each of 512 anchors in a loop",
        "idle while the CPU draws in a loop of Python, the CPU waits for the labels: draw them at "
        "once on the device",
        differs="other triplets are drawn",
    ),
    Flaw(
        "semi_hard_cubed",
        thread(
            "Use quadratic-memory semi-hard triplet mining",
            "huggingface/sentence-transformers/pull/4026",
        ),
        "distances of 512 sentences are repeated for each of them, to seek among 512 x 512 x 512",
        "copies by repeat and elementwise work on a cube of all triplets: sort the negatives of "
        "each anchor and search",
    ),
    Flaw(
        "feature_mask_by_numpy",
        thread(
            "Training speed is much slower than the offcial moco",
            "DTennant/CL-Visualizing-Feature-Transformation/issues/2",
        ),
        "the weights by which 65,536 negatives are mixed are drawn by numpy in each step",
        "idle while the CPU draws random numbers, and their copy: draw them on the device",
        differs="other weights are drawn",
    ),
)

DERIVATIVES = (
    Flaw(
        "derivatives_one_by_one",
        thread("Performance of computing partial derivative", "NeuroDiffGym/neurodiffeq/issues/77"),
        "a network for a flow takes each of its partial derivatives by a backward pass of its own",
        "repeated backward passes through the same graph (autograd.grad per coordinate): one call "
        "for all coordinates",
    ),
    Flaw(
        "projections_in_loop",
        thread("Resolves #76 for SSM and DSM #minor #release", "soran-ghaderi/torchebm/pull/80"),
        "sliced score matching runs its network and two gradients for each of 16 directions",
        "many small launches from a loop, launch-bound, repeated work: all directions in one batch",
    ),
    Flaw(
        "sample_gradients_in_loop",
        thread("Performance improvement", "kuc2477/pytorch-ewc/issues/3"),
        "the Fisher information of 128 samples takes a backward pass of the batch for each sample",
        "many small launches from a loop, repeated backward passes: vmap over grad",
    ),
    Flaw(
        "trajectory_grown_by_cat",
        thread("Make the System rollout linear in the horizon", "pnnl/neuromancer/pull/291"),
        "a rollout appends each of 256 states to its path by cat, and reads the last from there",
        "copies of the whole path in each moment (cat), and the backward of indexing it: a list, "
        "stacked at the end",
    ),
    Flaw(
        "denoiser_run_twice",
        thread("Wasteful computation in PosteriorDiffusion", "deepinv/deepinv/issues/896"),
        "posterior sampling runs its denoiser twice on the same image and level",
        "repeated work on the same input, a module that runs twice: use the first result",
    ),
    Flaw(
        "l2_in_loop",
        thread(
            "p1ch8/1_convolution.ipynb L2 regularization problem",
            "deep-learning-with-pytorch/dlwpt-code/issues/91",
        ),
        "the squares of each of 160 parameters are added to the loss one by one",
        "many small launches from a loop over parameters: weight_decay of the optimizer, or "
        "foreach",
    ),
    Flaw(
        "molecules_counted_by_item",
        thread(
            "Remove the graph breaks that make torch.compile a net loss",
            "isayevlab/aimnetcentral/pull/109",
        ),
        "each pass of a compiled potential asks by item() how many molecules there are",
        "graph breaks, or the CPU waits for the GPU (item): pass the number in",
    ),
)

ANSWERING = (
    Flaw(
        "window_lengths_per_layer",
        thread("Remove unnecessary CUDA sync in qwen2_5_vl", "huggingface/transformers/pull/39870"),
        "each layer of a vision model asks for the lengths of its images, which are on the GPU",
        "the CPU waits for the GPU in each layer (tolist): compute the lengths once, on the CPU",
    ),
    Flaw(
        "rotary_length_by_item",
        thread(
            "Slower than absolute positional embeddings?",
            "lucidrains/rotary-embedding-torch/issues/36",
        ),
        "rotary positions compare the number of tokens with a number that is on the GPU, twice in "
        "each layer",
        "the CPU waits for the GPU in each layer (item): keep the length as a number of Python",
    ),
    Flaw(
        "rotary_in_float32",
        thread(
            "feat: add optional torchembed fused Triton kernel for RotaryPositionalEmbeddings "
            "(8\u201323\u00d7 faster)",
            "meta-pytorch/torchtune/pull/2970",
        ),
        "queries and keys are turned in float32 by ten eager operations, and cast back",
        "elementwise operations that are not fused, casts: compile the rotation, or bfloat16",
    ),
    Flaw(
        "flex_attention_eager",
        thread("Flex Attention Extremely Slow", "pytorch/pytorch/issues/136261"),
        "flex_attention is called without compile, so that it writes out all scores",
        "attention that is not fused: torch.compile(flex_attention)",
    ),
    Flaw(
        "weights_dequantized_each_call",
        thread(
            "Question about inference time (resource-tables) : tps quantized llm < non quantized "
            "llm",
            "Lightning-AI/litgpt/issues/1302",
        ),
        "weights of 8 bits are made bfloat16 in each call, though memory is free",
        "repeated work with the same result, casts and elementwise work on weights: restore them "
        "once",
    ),
    Flaw(
        "logger_breaks_graph",
        thread(
            "[compile] Fix graphbreaks in moe split; scale_grad", "meta-pytorch/torchtune/pull/2771"
        ),
        "each compiled block calls a logger in its attention, which Dynamo does not trace",
        "graph breaks by a logger: log outside of compiled code",
    ),
)

RECURRING = (
    Flaw(
        "block_table_by_item",
        thread(
            "perf: replace per-element .item() GPU syncs with batch .tolist() in TTS code "
            "predictor",
            "vllm-project/vllm-omni/pull/1614",
        ),
        "before each token the table of pages is read from the GPU entry by entry",
        "the CPU waits for the GPU for each entry (item): compute slots on the device, or one "
        "tolist",
    ),
    Flaw(
        "cross_cache_reordered",
        thread(
            "Perform KV cache reordering only when we need to remove beams",
            "facebookresearch/fairseq2/pull/258",
        ),
        "after each token keys and values of the encoder are put in the order of the beams, which "
        "are all alike",
        "copies of the cache by index_select, though its rows are equal: do not reorder it",
    ),
    Flaw(
        "static_cache_too_long",
        thread("[WIP] Dynamic length in static cache", "huggingface/transformers/pull/30862"),
        "a static cache has 8192 places, of which some 200 are in use, and attention reads all",
        "attention over places that a mask hides, which is too much work: a shorter cache, or the "
        "part that is in use",
    ),
    Flaw(
        "loss_per_moment",
        thread("Faster loss functions based on #27", "IBM/pytorch-seq2seq/issues/34"),
        "the loss of a translator is computed word by word in a loop",
        "many small launches from a loop, launch-bound: the loss of all words at once",
    ),
    Flaw(
        "rollout_through_numpy",
        thread("sb3 is much slower to train than rl_games", "isaac-sim/IsaacLab/issues/523"),
        "a simulator on the GPU gives its states to numpy arrays, from where the policy reads them",
        "the CPU waits for the GPU for copies in each moment, copies back: keep rollouts on the "
        "device",
    ),
    Flaw(
        "harmonics_concatenated",
        thread(
            "Taming gs for faster training and rendering", "nerfstudio-project/gsplat/issues/384"
        ),
        "the harmonics of two million splats are put together from two tensors for each view",
        "copies by cat, and of its gradients: use both tensors as they are, or keep one",
    ),
    Flaw(
        "grouped_transposed_conv",
        thread("ConvTranspose1d groups=channels is very slow!!!", "pytorch/pytorch/issues/47341"),
        "a vocoder enlarges each channel by a transposed convolution with a group for each",
        "a grouped transposed convolution, or its backward, is slow for its groups: write it with "
        "shifts, or groups=1, or interpolate",
    ),
)

SIXTH = {
    flaw.name: flaw
    for group in (MATCHING, COMPARING, DERIVATIVES, ANSWERING, RECURRING)
    for flaw in group
}
