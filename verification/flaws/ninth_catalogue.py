"""The ninth collection of flaws, which no rule was written for before it had run.

It was made by somebody who had read the names and words of the other catalogues, and a few programs
for the form, and neither rules nor results. Threads on speed were searched by field and by
operation in some eighty queries, and were taken as they came, unless their cause was there already
in a like model. Threads were read in the excerpts that the search shows, not to their end; where an
excerpt names the function that was slow, and not its lines, the program has them as such functions
are usually written (`class_weights_in_loop`, `pseudo_labels_by_unique`, `hue_by_gather`,
`mel_filters_rebuilt`). Where a thread names a kernel of its own, or no remedy in plain PyTorch, it
was dropped, or a plain one was put in its place (`antialias_downscaling`, `erosions_in_numpy`,
`pseudo_labels_by_unique`). The thread of `pooled_by_cumsum` replaces a kernel that had replaced the
cumsum here; that of `learner_in_small_kernels` names more than a CUDA graph. Some threads measured
another device, an older torch or less memory rather than time. About half have a cause that an
earlier collection has in another model (a loop, a wait, a copy to the CPU, an index by a mask), as
what users meet repeats. Three depend on which kernels torch chooses today (`antialias_downscaling`,
`pooled_by_cumsum`, `factor_inverted`). Nothing was run on a GPU.
"""

from __future__ import annotations

from .flaw import Flaw, thread

__all__ = ["NINTH"]

PLACES = (
    Flaw(
        "ghm_bins_by_item",
        thread("Accelerate for loop in GHM Loss", "libuyu/GHM_Detection/issues/7"),
        "a loss of detection counts by item() how many of 13 million gradients lie in each of 30 "
        "bins",
        "the CPU waits for the GPU for each bin (item), comparisons and masks of all gradients in "
        "a loop over bins: one histogram, weights by index",
    ),
    Flaw(
        "target_masks_grid_sampled",
        thread(
            "perf(models): sample matched target masks directly in loss_masks",
            "roboflow/rf-detr/pull/1367",
        ),
        "the masks of 720 objects are picked, concatenated and made floats, to read each at 4096 "
        "points by grid_sample",
        "copies and a cast of whole masks (index, cat, float) before grid_sample of few points: "
        "index the masks at the points",
    ),
    Flaw(
        "pillars_scattered_per_sample",
        thread("fast vector operation for pillar scatter", "open-mmlab/OpenPCDet/pull/1676"),
        "the pillars of each of 32 clouds are found by a boolean mask and written to a map of "
        "their own",
        "the CPU waits for the GPU (max().item(), nonzero of boolean masks), many small launches "
        "from a loop over clouds, slow backward of indexing: write all pillars at once by a flat "
        "index",
    ),
    Flaw(
        "erosions_in_numpy",
        thread(
            "[question] how to train on GPU with the Hausdorff Losses?",
            "PatRyg99/HausdorffLoss/issues/1",
        ),
        "a Hausdorff loss copies errors to the CPU and erodes them ten times in numpy, image by "
        "image",
        "the GPU is idle while the CPU computes, the CPU waits for copies: convolutions on the "
        "device",
    ),
    Flaw(
        "pseudo_labels_by_unique",
        thread("About training time / Slow training schedule", "NVlabs/wetectron/issues/25"),
        "the loss of a weakly supervised detector asks for the unique clusters of each image, and "
        "takes the mean of each by a boolean mask",
        "the CPU waits for the GPU (unique, nonzero of masks), many small launches from a loop "
        "over clusters: sums over all clusters by scatter_add",
    ),
    Flaw(
        "shifted_windows_by_hand",
        thread(
            "SwinUNETR WindowAttention: add flash attention (scaled_dot_product_attention)",
            "Project-MONAI/MONAI/issues/8973",
        ),
        "a 3D Swin block writes out the scores of its windows, adds bias and mask, and makes the "
        "mask again in each forward",
        "attention by hand (product, sums, softmax, product) on large scores in float32, a mask "
        "that is made in each call: scaled_dot_product_attention with the bias and a mask that is "
        "kept",
    ),
    Flaw(
        "pooled_by_cumsum",
        thread("replace bevpool with scatter_add", "HuangJunJie2017/BEVDet/issues/104"),
        "features of cameras are summed up in cells of a map by a sort, a cumsum over 43,000 rows, "
        "and differences",
        "a cumsum along a dimension that is not the last is slow, or a sort, a mask that waits and "
        "the differences around it: index_add",
    ),
)

PICTURES = (
    Flaw(
        "hue_by_gather",
        thread(
            "perf(color): branchless hue selection in rgb_to_hsv (8.7x on MPS, byte-identical)",
            "kornia/kornia/pull/3915",
        ),
        "jitter of colours stacks the three hues, and eighteen planes on the way back, and gathers "
        "one in each pixel",
        "elementwise operations, stacks and gathers on large planes: choose by where, a formula "
        "without branches, or compile",
    ),
    Flaw(
        "antialias_downscaling",
        thread(
            "Bilinear interpolation with antialiasing is slow in performance",
            "pytorch/pytorch/issues/82397",
        ),
        "a discriminator halves its feature maps by F.interpolate with antialias",
        "the kernel of interpolation with antialias, or its backward (atomic sums), is slow: a "
        "product with fixed weights, a convolution or a pooling",
    ),
    Flaw(
        "coreset_by_item",
        thread(
            "feat(model): Make coreset selection for patchcore faster",
            "open-edge-platform/anomalib/pull/2968",
        ),
        "256 features are picked one after the other, each of which is a number of Python",
        "the CPU waits for the GPU for each pick (item, an index from a list), launch-bound: keep "
        "the index on the device",
    ),
    Flaw(
        "classes_compared_to_count",
        thread(
            "edited the computation of ConfusionMatrix for large speedup",
            "fastai/fastai/pull/2516",
        ),
        "a matrix of confusion compares the labels of 256 texts with all pairs of 3000 classes",
        "comparisons and a sum on a temporary of classes x classes x samples: add ones by index",
    ),
    Flaw(
        "pixels_counted_by_numpy",
        thread("conf_mat calculation by GPU", "HRNet/HRNet-Semantic-Segmentation/pull/220"),
        "the scores of all pixels are copied to the CPU, where numpy seeks the best classes and "
        "counts them",
        "the GPU is idle while the CPU counts, a blocking copy of large scores: argmax and counts "
        "on the device",
    ),
)

SOUNDS = (
    Flaw(
        "spectra_masked_one_by_one",
        thread("specaug speedup", "NVIDIA-NeMo/Speech/pull/6347"),
        "SpecAugment writes zeros to 12 bands of each of 48 spectra, and asks for each length",
        "the CPU waits for the GPU (int of a length) and many small launches from a loop over "
        "spectra and masks: one mask for all",
    ),
    Flaw(
        "mel_filters_rebuilt",
        thread(
            "reuse resamplers and cache vocos MelSpectrogram instances", "SWivid/F5-TTS/pull/1285"
        ),
        "each of 24 clips has a MelSpectrogram of its own, whose filters are computed on the CPU "
        "and copied",
        "idle while the CPU makes tensors, blocking copies to the device, for each clip: keep one "
        "instance on the device",
    ),
    Flaw(
        "context_projected_each_step",
        thread("Speed up attention", "pytorch/examples/issues/107"),
        "a decoder projects all encoded words again before each of 40 words that it writes",
        "repeated work on the same input (a linear layer, and its gradients) in a loop over words: "
        "project once before the loop",
    ),
    Flaw(
        "inputs_projected_in_recurrence",
        thread("Any plans to implement recurrent layers?", "BobMcDear/attorch/issues/11"),
        "a GRU of its own projects the input of each of 96 moments in its loop",
        "many small products and launches from a loop over moments: project all moments at once "
        "before the loop",
    ),
    Flaw(
        "windows_built_in_list",
        thread(
            "Sequence batches are gathered once, on the card, instead of built window by window",
            "stefan-jansen/machine-learning-for-trading/pull/1013",
        ),
        "the 2048 windows of a batch are cut out one by one of a table, and stacked",
        "idle while the CPU slices in a list comprehension, or many small launches and the stack: "
        "gather all windows by one index",
    ),
)

TEXTS = (
    Flaw(
        "balance_one_hot",
        thread(
            "Compute MoE load-balancing loss per layer to avoid giant one-hot materialization",
            "huggingface/transformers/pull/48131",
        ),
        "the loss that balances experts makes one-hot rows of all choices in all layers, and a "
        "mask of their size",
        "one_hot, casts, copies and sums on large temporaries of tokens, choices and experts: "
        "counts by index_add or bincount, layer by layer",
    ),
    Flaw(
        "outer_products_summed",
        thread(
            "a more efficient computation of the state in the chunkwise formulation",
            "fkodom/yet-another-retnet/pull/22",
        ),
        "retention writes out the outer product of key and value of each token, before their "
        "weighted sum",
        "einsum writes a large temporary of outer products, elementwise, and sums it up: weigh the "
        "keys, then one product of matrices",
    ),
    Flaw(
        "keys_unfolded_for_windows",
        thread("improve slidingwindowattention by chunking", "gdewael/bio-attention/pull/1"),
        "each base has a copy of the 33 keys and values around it, which einsum multiplies",
        "copies of keys and values by unfold and contiguous, and products of single rows: chunks "
        "of queries with the keys around them",
    ),
    Flaw(
        "class_weights_in_loop",
        thread("Optimize the training speed", "varsha33/LCL_loss/issues/2"),
        "the weights of a contrastive loss are written column by column, for each of 256 labels",
        "many small launches from a loop over labels (and its backward), the CPU waits for the GPU "
        "(an index on the device): one index",
    ),
    Flaw(
        "penalties_by_mask",
        thread(
            "[Core] Speed up decode by remove synchronizing operation in sampler",
            "vllm-project/vllm/pull/16436",
        ),
        "a sampler divides and multiplies scores that it picks by a boolean mask and its negative",
        "the CPU waits for the GPU (nonzero of boolean masks), gathers and writes by index of all "
        "scores: choose factors by where",
    ),
    Flaw(
        "decoder_bias_each_token",
        thread("cache umt5 bias computation", "huggingface/transformers/pull/26150"),
        "each layer computes the bias of all pairs of places again for each token, and uses a row",
        "repeated work, many small launches for each layer and token (arange, log, where, an "
        "embedding): compute the bias once and keep it",
    ),
    Flaw(
        "adapters_mixed_in_loop",
        thread("FEAT Mixing different LoRA adapters in same batch", "huggingface/peft/pull/1558"),
        "each layer takes out the texts of each of 8 adapters by a list, and adds what the adapter "
        "gives",
        "the CPU waits for the GPU (an index from a list is copied), many small launches from a "
        "loop over adapters: a batched product with the adapter of each text",
    ),
)

SCIENCES = (
    Flaw(
        "task_losses_counted",
        thread(
            "[perf] UMA-S conserving training on 8x B200: 152.2 ms to 144.6 ms per step, from the "
            "host synchronizations in the loss",
            "facebookresearch/fairchem/pull/2203",
        ),
        "the loss of each of 24 tasks picks its atoms by a mask, counts them, and asks whether all "
        "are finite",
        "the CPU waits for the GPU for each task (a boolean mask, nonzero, a branch on a tensor): "
        "masks and counts on the device",
    ),
    Flaw(
        "adjacency_validated",
        thread(
            "Mesh: eliminate host-device syncs on adjacency/BVH/smoothing hot paths",
            "NVIDIA/physicsnemo/pull/1720",
        ),
        "each lookup of a mesh's cached neighbours makes an object that checks two numbers by "
        "item()",
        "the CPU waits for the GPU at each lookup (item): keep the object that was checked",
    ),
    Flaw(
        "scores_by_broadcast",
        thread(
            "Replace broadcast+reduce with matmul for faster operation both on CPU and CUDA "
            "devices",
            "pyg-team/pytorch_geometric/pull/7766",
        ),
        "the scores of 200,000 nodes are the sums of their products with a row, twice in a layer",
        "an elementwise product and a sum over large features, and their backward: a product of "
        "matrices",
    ),
    Flaw(
        "factor_inverted",
        thread(
            "Remove custom batch methods, smarter cholesky inverse, no dtype cast",
            "cornellius-gp/gpytorch/pull/842",
        ),
        "a Gaussian process inverts its triangular factors of 2048 rows as any matrix",
        "inverse of a triangular matrix is slow (LU): solve_triangular, or cholesky_solve",
    ),
    Flaw(
        "members_one_by_one",
        thread(
            "Option to run equal-shape ensemble members as one batched forward pass",
            "PriorLabs/TabPFN/pull/1268",
        ),
        "a transformer of tables runs for each of 16 members of an ensemble by itself",
        "launch-bound, many small launches from a loop over members: put the members into the "
        "batch",
    ),
    Flaw(
        "learner_in_small_kernels",
        thread(
            "FastSAC GPU \u5229\u7528\u7387\u4f4e\uff1alearner \u4fa7 tiny-kernel / launch-bound "
            "\u788e\u7247\u5316",
            "Motphys/UniLab/issues/662",
        ),
        "the update of an actor, two critics and their slow copies is some hundreds of small "
        "kernels",
        "launch-bound, many small launches: a CUDA graph, compile, or foreach for the slow copies",
    ),
)

NINTH = {flaw.name: flaw for group in (PLACES, PICTURES, SOUNDS, TEXTS, SCIENCES) for flaw in group}
