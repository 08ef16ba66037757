"""The eighth collection of flaws, which no rule was written for before it had run.

It was made by somebody who had read the names and words of the other catalogues, and a few programs
for the form, and neither rules nor results. Threads on speed were searched by field and by
operation in some fifty queries, and were taken as they came, unless their cause was there already
in a like model. Some ten have a cause of an earlier collection in another model (a loop that waits,
a frozen encoder that runs again, an index that repeats, a graph break), as what users meet repeats.
Threads were read in the excerpts that the search shows, not to their end. Where a thread names no
remedy in plain PyTorch for one GPU, it was dropped, or a plain one was put in its place. Some
threads measured another device, an older torch, or a larger model than the program here; four
(`normals_by_svd`, `pyramid_pools_adaptive`, `padding_loses_layout`, `embeddings_resampled`) depend
on which kernels torch and its libraries choose today. Routing by words stands for the trained
router of `experts_split_by_tolist`, so that counts stay the same. Nothing was run on a GPU.
"""

from __future__ import annotations

from .flaw import Flaw, thread

__all__ = ["EIGHTH"]

PICTURES = (
    Flaw(
        "focal_targets_from_host",
        thread("Speedup by direct allocation in focus loss", "signatrix/efficientdet/issues/30"),
        "a focal loss fills targets, weights and zeros for all anchors and classes of each image "
        "on the CPU and copies them to the GPU",
        "idle while the CPU makes tensors, or their blocking copies to the device: make them on "
        "the device (ones_like, full_like)",
    ),
    Flaw(
        "matching_per_set",
        thread(
            "[layout] Batch the LW-DETR Hungarian matching and loss across all prediction sets",
            "mindee/doctr/pull/2141",
        ),
        "the loss of each of 39 sets of predictions copies the costs of each image to the CPU, "
        "matches there, and copies the matches back",
        "the CPU waits for the GPU for each set and image (blocking copies), many small launches "
        "from a loop over sets: the costs of all sets at once, one copy each way",
    ),
    Flaw(
        "lovasz_per_class",
        thread("Vectorize lovasz_softmax loss", "kornia/kornia/pull/2884"),
        "the Lovasz loss sorts the errors of each of 150 classes in a loop",
        "many small launches from a loop over classes, launch-bound: sort the errors of all "
        "classes at once",
    ),
    Flaw(
        "pyramid_pools_adaptive",
        thread(
            "Speed-up adaptive average pooling for the common case of size=1 output",
            "pytorch/pytorch/pull/17011",
        ),
        "adaptive_avg_pool2d takes means over 2 x 2, 3 x 3 and 6 x 6 large cells of 2048 channels",
        "adaptive average pooling to few cells, or its backward, is a slow kernel: reshape, and "
        "mean over the cells",
    ),
    Flaw(
        "images_encoded_one_by_one",
        thread("Support Paligemma google/paligemma-3b-mix-224", "sgl-project/sglang/pull/18422"),
        "a vision tower encodes each of 24 images by itself before a language model reads them",
        "many small launches from a loop over images, launch-bound, small products: encode all "
        "images in one batch",
    ),
    Flaw(
        "windows_few_at_a_time",
        thread(
            "SlidingWindowInferer runtime increase if sw_batch_size is too big",
            "Project-MONAI/MONAI/issues/6628",
        ),
        "a volume is scanned in 245 windows of 16 x 16 x 16, four at a time",
        "launch-bound, many small launches from a loop over windows: more windows at once",
        anywhere=True,
    ),
)

VIEWS = (
    Flaw(
        "pdf_intervals_compared",
        thread("speedup PDFSampler impl.", "nerfstudio-project/nerfstudio/pull/116"),
        "new places on rays are found by comparing each with all 193 ends of the ray's intervals",
        "elementwise operations and reductions on a large temporary of rays, ends and places: "
        "searchsorted and gather",
    ),
    Flaw(
        "camera_positions_indexed",
        thread(
            "Packed backward pass speedup via unrolled camera position indexing",
            "nerfstudio-project/gsplat/pull/831",
        ),
        "the positions of four cameras are looked up by an index for each splat, whose backward "
        "sums up all splats row by row",
        "the backward of indexing is slow for an index that repeats (four rows): subtract the "
        "position of each camera from its part by broadcasting, or index_select",
    ),
    Flaw(
        "normals_by_svd",
        thread(
            "SVD with `full_matrices=False` slower than `full_matrices=True` & "
            "`full_matrices=False` on GPU 1000x slower than CPU",
            "pytorch/pytorch/issues/86234",
        ),
        "the normals of 256 patches come from the SVD of 128 x 3 matrices",
        "linalg.svd is slow for many tall matrices, it runs them one by one, many small launches: "
        "eigh of the 3 x 3 products",
    ),
    Flaw(
        "tracks_one_by_one",
        thread(
            "Where is the potential source for the numerical issue?",
            "raphaelreme/torch-kf/issues/1",
        ),
        "a tracker predicts and corrects each of 100 tracks by a Kalman filter of its own",
        "many small launches from a loop over tracks, launch-bound: filter all tracks in one batch",
    ),
    Flaw(
        "padding_loses_layout",
        thread(
            "[diffusion] Run LTX-2 VAE decode in channels_last_3d (faster decode, lower peak "
            "memory)",
            "sgl-project/sglang/pull/27431",
        ),
        "a video decoder in channels_last_3d pads each convolution in time by repeat and cat, "
        "which give the other layout",
        "copies to another layout around convolutions (cat, conversions): pad into a tensor that "
        "has the layout of channels last",
    ),
)

FLOWS = (
    Flaw(
        "text_encoded_each_denoising",
        thread(
            "We don't have to encode_text in each denoise timestep (but compute them at the "
            "beginning), do we?",
            "GuyTevet/motion-diffusion-model/issues/151",
        ),
        "a frozen encoder reads the same prompts in each of ten steps of denoising",
        "repeated work on the same input, a module that runs again: encode the prompts once",
    ),
    Flaw(
        "couplings_on_cpu",
        thread(
            "Optimal transport with torch + GPU?", "atong01/conditional-flow-matching/issues/136"
        ),
        "the partners of 1024 images and noises are found by Sinkhorn's algorithm in numpy",
        "the GPU is idle while the CPU computes, the CPU waits for copies: Sinkhorn on the device",
    ),
    Flaw(
        "spline_inside_by_mask",
        thread(
            "Refactored rational-quadratic spline transforms to run faster",
            "bayesiains/nflows/pull/44",
        ),
        "each of eight couplings picks what lies within a spline's bounds by a boolean mask, and "
        "writes it back by the mask",
        "the CPU waits for the GPU (nonzero, indexing by a boolean mask), gathers and their "
        "backward: clamp, compute for all, and choose by where",
    ),
    Flaw(
        "kronecker_weight_rebuilt",
        thread(
            "LoKr forward pass optimization + convrot compile fix", "ostris/ai-toolkit/pull/945"
        ),
        "adapters that are Kronecker products are multiplied out to whole weights, and added to "
        "these, in each call",
        "elementwise operations, casts and gradients of the size of whole weights: multiply the "
        "activations by both small matrices",
    ),
)

UPDATES = (
    Flaw(
        "orthogonal_by_alpha",
        thread("avoid CUDA syncs", "Koratahiu/Advanced_Optimizers/pull/5"),
        "gradients are projected by sub with a tensor as alpha, which reads it from the GPU, for "
        "each parameter",
        "the CPU waits for the GPU for each parameter (item, by alpha): multiply by the tensor, "
        "or foreach",
    ),
    Flaw(
        "shampoo_roots_each_step",
        thread("Updated Shampoo uber slow performance", "kozistr/pytorch_optimizer/issues/100"),
        "Shampoo takes the roots of 12 matrices by their eigenvalues in each step, one by one",
        "linalg.eigh is slow, many small launches, the CPU waits for it: roots by products for all "
        "matrices (Newton), or every 20 steps",
    ),
    Flaw(
        "meters_check_nan",
        thread("torchmetric optimizations", "Lightning-AI/torchmetrics/pull/2943"),
        "40 meters of losses and accuracies ask `if nans.any()` for each value",
        "the CPU waits for the GPU for each meter (a branch on a tensor): no check, or once a step",
    ),
    Flaw(
        "observers_apart",
        thread(
            "Use FusedMovingAvgObsFakeQuantize instead of FakeQuantize for faster QAT",
            "pytorch/executorch/pull/14740",
        ),
        "training for 8 bits runs an observer and a FakeQuantize for each input and weight",
        "many small launches and waits of the CPU for the GPU (branches on buffers) in "
        "FakeQuantize and its observers: FusedMovingAvgObsFakeQuantize",
    ),
    Flaw(
        "channels_dequantized_in_loop",
        thread("[quant] Speed up dequantize_per_channel", "pytorch/pytorch/pull/132828"),
        "weights of 8 bits are restored channel by channel in a loop",
        "many small launches from a loop over channels, launch-bound: restore the whole weight "
        "at once",
    ),
)

ATOMS = (
    Flaw(
        "cells_by_pinverse",
        thread("initial torch neighborlist implementation", "facebookresearch/fairchem/pull/50"),
        "the cell of each of 48 crystals is inverted by pinverse, in a loop",
        "pinverse (an SVD) of a small matrix for each crystal is slow, many small launches from a "
        "loop, the CPU waits: invert all cells at once, by cross products or inv",
    ),
    Flaw(
        "pairs_found_each_step",
        thread(
            "Move part of neighborlist calculation to the dataloader/dataset",
            "choderalab/modelforge/issues/141",
        ),
        "each step seeks the pairs of atoms of the same molecule among all 19 million of a batch",
        "too much work, or repeated work, on all pairs (triu_indices, indexing, nonzero, for which "
        "the CPU waits): keep the pairs within molecules",
    ),
    Flaw(
        "variance_products_order",
        thread(
            "A variational strategy optimized for large batch stochastic training",
            "cornellius-gp/gpytorch/pull/2688",
        ),
        "the variances of a Gaussian process multiply 1024 x 1024 matrices by 49152 columns, three "
        "times",
        "products (and a triangular solve) in float32 with many columns, too much work for their "
        "order: multiply the small matrices first",
    ),
)

CHOICES = (
    Flaw(
        "all_items_scored",
        thread(
            "Implemented sampled softmax for NextItemPredictionTask",
            "NVIDIA-Merlin/Transformers4Rec/pull/671",
        ),
        "the loss of a recommender scores all of 200,000 items in each place",
        "the product with, and the loss over, all items, large logits: sampled softmax (or a fused "
        "loss)",
        differs="negatives are sampled",
    ),
    Flaw(
        "negatives_gathered_per_triple",
        thread("Not able to achieve published training performance", "uma-pi1/kge/issues/161"),
        "the embeddings of 512 false entities are gathered for each of 1024 triples, twice",
        "embeddings that are gathered, written and multiplied, and their backward: a product with "
        "all entities, of which the scores are picked",
    ),
    Flaw(
        "agents_one_by_one",
        thread("The Training Time Problem\uff08Solved)", "proroklab/gnn_pathplanning/issues/2"),
        "the maps of each of 20 robots pass the same convolutions in a loop",
        "many small launches from a loop over robots, launch-bound: put the robots into the batch",
    ),
    Flaw(
        "embeddings_resampled",
        thread(
            "Significant bottleneck in TFT model training & inference", "unit8co/darts/issues/2897"
        ),
        "a forecaster stretches the embeddings of variables by F.interpolate in each moment",
        "the kernel of linear interpolation (upsample_linear1d), or its backward, is slow: its few "
        "threads go through all rows: a linear layer, a product with fixed weights, or none",
    ),
    Flaw(
        "planner_repeats_states",
        thread(
            "Optimize MPPI hot path for GPU performance and add torch.compile support",
            "UM-ARM-Lab/pytorch_mppi/pull/9",
        ),
        "a planner repeats states, clamps, takes variances and keeps all states in each of 40 "
        "moments",
        "launch-bound, many small launches from a loop over moments: leave out what is not needed, "
        "compile, or a CUDA graph",
    ),
    Flaw(
        "experts_split_by_tolist",
        thread("graph break torch compile", "PrimeIntellect-ai/prime-rl/issues/996"),
        "compiled blocks read how many tokens each expert has by tolist, and loop over experts",
        "graph breaks, or the CPU waits for the GPU (tolist), small products in a loop: a grouped "
        "product by offsets on the device",
    ),
    Flaw(
        "transducer_one_by_one",
        thread(
            "Implement greedy search in batch mode for transducer decoding.",
            "k2-fsa/icefall/pull/262",
        ),
        "a transducer decodes utterance by utterance and asks for the word of each frame",
        "the CPU waits for the GPU for each frame (item), many small launches from a loop over "
        "utterances: decode all utterances at once",
    ),
)

EIGHTH = {
    flaw.name: flaw for group in (PICTURES, VIEWS, FLOWS, UPDATES, ATOMS, CHOICES) for flaw in group
}
