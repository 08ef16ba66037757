"""The seventh collection of flaws, which no rule was written for before it had run.

It was made by somebody who had read the sixth catalogue, the names and words of the others, and a
few programs for the form, and neither rules nor results. Threads on speed were searched by field
and by operation in some fifty queries, and were taken as they came, unless their cause was there
already in a like model. Some ten have a cause of an earlier collection in another model, as what
users meet repeats. Most threads were read in the excerpts that the search shows, not to their end.
Where the remedy of a thread is a kernel to be written, a remedy of plain PyTorch was put in its
place if there is one, and the thread was dropped if not. Nothing was run on a GPU.
"""

from __future__ import annotations

from .flaw import Flaw, thread

__all__ = ["SEVENTH"]

TOKENS = (
    Flaw(
        "selective_scan_in_loop",
        thread("Using cumsum instead of a for loop", "johnma2006/mamba-minimal/issues/18"),
        "the states of a Mamba block are computed moment by moment in a loop of Python",
        "many small launches from a loop over time, launch-bound: cumulative sums (a scan) over "
        "all moments at once",
    ),
    Flaw(
        "short_convolution_depthwise",
        thread("Short conv is miserable slow in pytorch", "pytorch/pytorch/issues/192902"),
        "queries, keys and values pass a depthwise conv1d over four tokens, between transposes",
        "a depthwise (grouped) convolution, or its backward, is slow, and copies for its layout: "
        "add up four shifted products in the layout that is there, or compile them",
    ),
    Flaw(
        "penalty_token_by_token",
        thread(
            "Vectorize repetition/presence penalty in BaseGenerate.sample_token",
            "Comfy-Org/ComfyUI/pull/14645",
        ),
        "before each token the scores of the words that a text has are made smaller word by word",
        "the CPU waits for the GPU for each word (a branch on a tensor) in a loop of Python: "
        "gather, where and scatter for all words at once",
    ),
    Flaw(
        "expert_deltas_written",
        thread("Fold the MoE LoRA delta into a single `baddbmm`", "huggingface/peft/pull/3577"),
        "adapters of low rank are multiplied out to the size of all experts' weights, scaled and "
        "added to these",
        "elementwise operations and copies of the size of all weights (the delta is written, "
        "scaled, added): one baddbmm, or the adapter beside the layer, x A B",
    ),
    Flaw(
        "viterbi_per_sentence",
        thread("Compute Viterbi Decode in parallel on minibatch", "kmkurn/pytorch-crf/pull/16"),
        "the best tags of eight sentences are sought sentence by sentence, and read one by one",
        "many small launches from a loop over sentences, the CPU waits for each tag (int of a "
        "tensor): decode all sentences at once, and copy the tags once",
    ),
    Flaw(
        "labels_by_bilinear",
        thread(
            "Replace `torch.nn.Bilinear` by our own implementation",
            "explosion/spacy-experimental/pull/47",
        ),
        "the labels of arcs are scored by nn.Bilinear, which multiplies for each label by itself",
        "nn.Bilinear runs a product and more for each output, many small launches: one einsum or "
        "matmul for all outputs",
    ),
)

SERIES = (
    Flaw(
        "phases_summed_in_columns",
        thread("torch.cumsum() super slow on 2d input", "pytorch/pytorch/issues/122170"),
        "the phase of a tone is a cumsum over 64,000 samples that are not the last dimension",
        "cumsum over a dimension that is not the last, with few columns, runs in few threads, one "
        "sample after the other: sum along the last dimension",
    ),
    Flaw(
        "correlation_over_all_lags",
        thread("[FEAT] - Add VCformer model", "Nixtla/neuralforecast/pull/1030"),
        "series attend by their correlation, computed by FFT for all pairs and lags, and averaged",
        "inverse FFTs, complex products and a mean over all pairs and lags, too much work: the "
        "mean over lags is a product of sums (or a matmul)",
    ),
    Flaw(
        "codebooks_launched",
        thread(
            "[Perf][Fish Speech] Enable CUDA Graph capture for Fast AR code predictor",
            "vllm-project/vllm-omni/pull/2520",
        ),
        "a small decoder goes from codebook to codebook of one frame of sound in eager code",
        "launch-bound: many small launches, the GPU waits for the CPU: a CUDA graph, or compile "
        "with reduce-overhead",
        anywhere=True,
    ),
    Flaw(
        "spikes_step_by_step",
        thread(
            "Question on multi step mode implementation",
            "fangwei123456/spikingjelly/issues/586",
        ),
        "a spiking network runs all of its layers in each of 16 moments",
        "many small launches from a loop over time, small convolutions: put the moments into the "
        "batch for layers without a state (layer by layer)",
    ),
)

VOLUMES = (
    Flaw(
        "blobs_one_by_one",
        thread(
            "Optimised code for compute_blob_loss_multi and style change in compute_compound_loss",
            "neuronflow/blob_loss/pull/6",
        ),
        "the Dice loss of each of 16 blobs of a volume is taken with masks of the whole volume",
        "many launches over whole volumes from a loop over blobs, the CPU waits for their labels "
        "(unique, a branch): sums over all labels at once",
    ),
    Flaw(
        "instance_norm_layout",
        thread(
            "[CUDA] Add channels_last_3d support for commonly used modules",
            "pytorch/pytorch/issues/59168",
        ),
        "a 3D U-Net with instance norms is put into channels_last_3d, which they do not keep",
        "copies to another layout around each instance norm (contiguous, conversions by "
        "convolutions): keep the contiguous layout, or a norm that keeps channels last",
    ),
    Flaw(
        "blur_in_two_dimensions",
        thread(
            "\U0001f41e PaDiM 7x faster and PatchCore 1.5x at inference, identical output: the "
            "anomaly map blur isn't applied separably",
            "open-edge-platform/anomalib/issues/3780",
        ),
        "maps of defects are blurred by a Gaussian window of 33 x 33",
        "a convolution with a large square kernel of one channel: it is separable, use two of "
        "33 x 1 and 1 x 33",
    ),
    Flaw(
        "patches_permuted_per_image",
        thread("broadcast randperm with dim specification", "pytorch/pytorch/issues/31679"),
        "a masked autoencoder draws a permutation of the patches for each of 256 images",
        "many small launches from a loop over images (randperm), launch-bound: rand and argsort "
        "for all images",
        differs="other patches are hidden",
    ),
    Flaw(
        "codes_by_one_hot",
        thread(
            "Why your way to get quantized vectors is so tortuous?", "MishaLaskin/vqvae/issues/2"
        ),
        "the vectors of chosen codes are a product with one-hot rows of 8192",
        "a one-hot matrix is made and multiplied by a table: look the rows up (embedding)",
    ),
    Flaw(
        "giou_mask_breaks",
        thread("Remove graph break in giou and diou losses", "pytorch/vision/pull/9518"),
        "a compiled loss of boxes writes the shared areas by a boolean mask, six times",
        "graph breaks, or the CPU waits for the GPU, by indexing with a boolean mask: clamp the "
        "sides at zero",
    ),
)

MOTION = (
    Flaw(
        "kinematics_by_autograd",
        thread(
            "Analytical FK backward: 9x faster gradient computation",
            "UM-ARM-Lab/pytorch_kinematics/pull/70",
        ),
        "autograd goes back through the product of 30 small rotations of an arm",
        "launch-bound, many small launches from a loop over joints and its backward: an analytic "
        "gradient (an autograd.Function), or compile, or a CUDA graph",
    ),
    Flaw(
        "traces_on_cpu",
        thread(
            "[RLlib] APPO accelerate (vol 14): Leave v-trace operations on GPU, if applicable.",
            "ray-project/ray/pull/50528",
        ),
        "the targets of V-trace are computed on the CPU, moment by moment, and copied back",
        "the GPU is idle while the CPU computes, the CPU waits for copies: compute the targets on "
        "the device",
    ),
    Flaw(
        "routes_one_by_one",
        thread("maze-loss-batch-vectorization", "SakanaAI/continuous-thought-machines/pull/25"),
        "how far each of 48 routes is right is asked route by route and look by look",
        "the CPU waits for the GPU in a loop of Python (nonzero, int): cumulative products for "
        "all routes on the device",
    ),
    Flaw(
        "rotations_by_matrix_exp",
        thread(
            "torch.matrix_exp Performance Issue - Extreme Slowness on GPU (3x slower than CPU)",
            "pytorch/pytorch/issues/105225",
        ),
        "100,000 rotations are made from their vectors by matrix_exp",
        "matrix_exp of many small matrices is slow: it sorts them by norm, waits for the GPU, and "
        "runs many small products, its backward on doubled matrices: a closed form (Rodrigues), "
        "or one scheme for all matrices",
    ),
    Flaw(
        "jacobian_row_by_row",
        thread(
            "Add a `vectorize` flag to torch.autograd.functional.{jacobian, hessian}",
            "pytorch/pytorch/issues/50584",
        ),
        "the Jacobian of a model of dynamics takes a backward pass for each of its 32 rows",
        "repeated backward passes, many small launches from a loop over rows: vectorize=True, or "
        "vmap and jacrev",
    ),
)

KEEPING = (
    Flaw(
        "average_on_cpu",
        thread("about the training speed", "lucidrains/ema-pytorch/issues/5"),
        "the moving average of the weights lies on the CPU, and each weight is copied to it",
        "the CPU waits for copies of each weight, the GPU is idle while the CPU averages: keep "
        "the average on the device, foreach, or update it rarely",
    ),
    Flaw(
        "adan_per_parameter",
        thread("`torch._foreach...` implementation", "sail-sg/Adan/issues/1"),
        "an optimizer of its own updates 148 parameters one after the other",
        "many small launches from a loop over parameters, launch-bound: torch._foreach functions, "
        "or compile the step",
    ),
    Flaw(
        "auroc_by_sorting",
        thread("Added faster AUROC", "ludwig-ai/ludwig/pull/1758"),
        "each step sorts the predictions of the last 256 batches for the area under a curve",
        "sorting of millions of predictions in each step: count them between thresholds, or "
        "compute the measure rarely",
    ),
    Flaw(
        "concepts_in_loop",
        thread(
            "Vectorize implementation of compute concept loss for CBM model. Free speed up!",
            "mvandenhi/SCBM/pull/4",
        ),
        "the loss of each of 112 concepts is computed in a loop",
        "many small launches from a loop over concepts, launch-bound: the loss of all at once",
    ),
    Flaw(
        "groups_in_loop",
        thread("More efficient", "ananyahjha93/multi-level-vae/pull/2"),
        "a VAE adds up what the samples of a label tell sample by sample, in a dictionary",
        "the CPU waits for the GPU for each label (item), many small launches from a loop: "
        "index_add for all samples",
    ),
)

RELATIONS = (
    Flaw(
        "edge_softmax_maxima",
        thread("More fast softmax: Global softmax", "pyg-team/pytorch_geometric/issues/1705"),
        "attention of 800,000 edges takes a maximum for each node, with its gradient",
        "scatter_reduce with amax, its gather, and their backward: one maximum of all edges, or "
        "no gradient of the maxima",
    ),
    Flaw(
        "voxels_by_rows",
        thread(
            "torch.unique_consecutive() is very slow when dim is specified even with 1-d tensors",
            "pytorch/pytorch/issues/62690",
        ),
        "the voxels of 480,000 points are the unique rows of their coordinates",
        "unique with dim sorts rows by comparing them, which is slow: one key for each row, and "
        "unique without dim",
    ),
    Flaw(
        "relative_positions_one_hot",
        thread(
            "Replace one-hot+linear with embedding lookup in RelativePositionEncoding",
            "bytedance/PXDesign/pull/17",
        ),
        "the distances of a million pairs of residues are one-hot rows for a linear layer",
        "one-hot tensors of integers are made, joined, cast and multiplied: look the rows of the "
        "weights up (embedding)",
    ),
    Flaw(
        "effects_by_inverse",
        thread(
            "Speed up runtime by replacing matrix multiplication with linalg.solve",
            "PMBio/bicycle/pull/3",
        ),
        "the states of a causal model are a product with the inverses of 64 matrices",
        "inverses of matrices that are multiplied by few columns: linalg.solve",
    ),
)

SEVENTH = {
    flaw.name: flaw
    for group in (TOKENS, SERIES, VOLUMES, MOTION, KEEPING, RELATIONS)
    for flaw in group
}
