"""The twelfth collection of flaws, which no rule was written for before it had run.

It was made by somebody who had read the names and words of the other catalogues, a few programs for
the form, the names of the rules and the headings of their reference, and neither rules nor results.
Threads on speed were searched by field, by operation and by setting in 60 queries, all of them
among threads. Those were taken that name an operation that is slow or needless, and whose cause no
earlier collection has in a like model; most threads only ask why something is slow, and were left
out. Threads were read in the excerpts that the search shows, not to their end; where an excerpt
names the function that was slow, and not its lines, the program has them as such functions are
usually written (`real_waves_judged_twice`, `candidates_per_object`, `kernel_factored_per_draw`,
`sampled_keys_expanded`). Many programs are smaller or simpler than what the threads are about:
`costs_of_whole_batch` takes the least cost in place of an assignment, `inputs_repeated_for_experts`
has experts that are chosen beforehand and take as many words each, `basis_of_fixed_cloud` one layer
that is not equivariant, `generated_again_for_critic` trains the critic first, so that the generator
is the same in both calls. Some threads do not say that time is lost: the one of
`heads_run_for_shape` is about traced code, that of `neighbours_per_layer` about a mistake in a
model, that of `image_encoded_per_caption` weighs both ways, and that of `mask_losses_outside_boxes`
says that most of the loss is zeros (another thread on such masks, which an earlier collection has,
says that they cost time). Two are about another framework (`cache_restored_each_token`,
`inputs_repeated_for_experts`). The one of `sampled_keys_expanded` names two slow functions, and not
why; the mask of `text_mask_all_true` is there mostly true, and in the program all of it. Some
remedies are not those of the thread: `counts_of_padding` (which has none), `alignment_cell_by_cell`
(diagonals), `hessian_for_its_trace` (derivatives that go through the layers), `hard_pixels_on_cpu`.
More than half have a cause that an earlier collection has in another model (waits, loops, work of
the CPU, work that is repeated or not used), as what users meet repeats. Four depend on which
kernels torch chooses today (`threshold_by_kthvalue`, `counts_of_padding`, `text_mask_all_true`,
`inputs_repeated_for_experts`). Nothing was run on a GPU.
"""

from __future__ import annotations

from .flaw import Flaw, thread

__all__ = ["TWELFTH"]

DETECTING = (
    Flaw(
        "heads_run_for_shape",
        thread("[JIT] Redundant convolution generated in 1.2.0", "pytorch/pytorch/issues/24327"),
        "each head of a detector runs twice, once to ask its result for the size of the batch",
        "a module that runs again on the same input, a result that nobody uses: take the size from "
        "the input",
    ),
    Flaw(
        "hard_pixels_on_cpu",
        thread("Training is too slow", "Tramac/Fast-SCNN-pytorch/issues/28"),
        "the hard pixels of a segmentation are sought by numpy, which sorts their chances",
        "the GPU is idle while the CPU sorts, blocking copies to the CPU and back: choose the "
        "pixels on the device",
    ),
    Flaw(
        "candidates_per_object",
        thread(
            "Optimization of dynamic_k_matching and bboxes_iou",
            "Megvii-BaseDetection/YOLOX/pull/861",
        ),
        "each of 256 objects takes so many anchors as a number on the GPU says, by a topk of its "
        "own",
        "the CPU waits for the GPU for each object (int), many small launches from a loop: one "
        "topk for all, and a mask",
    ),
    Flaw(
        "costs_of_whole_batch",
        thread(
            "perf(matcher): compute detection-only cost matrix padded to max(T_i), not sum(T_i)",
            "roboflow/rf-detr/pull/1297",
        ),
        "the costs of all queries are computed for the objects of all 16 images, of which each "
        "image needs its own",
        "work that nobody uses (blocks of a matrix beside the diagonal), elementwise operations on "
        "large temporaries: costs image by image in one batch",
    ),
    Flaw(
        "classes_one_by_one",
        thread(
            "make zero shot classifier building less slow by batching",
            "mlfoundations/open_clip/issues/142",
        ),
        "the eight texts of each of 48 classes are encoded class by class",
        "many small launches from a loop over classes, small products: encode all texts in one "
        "batch",
    ),
    Flaw(
        "image_encoded_per_caption",
        thread(
            "run features through encoder once of n times?",
            "ruotianluo/self-critical.pytorch/issues/184",
        ),
        "each image is repeated for its five captions before it is encoded",
        "the same samples are computed five times (repeat_interleave): encode each image once, "
        "and repeat what the encoder gives",
    ),
)

VOICING = (
    Flaw(
        "real_waves_judged_twice",
        thread(
            "Don't recalculate combd for downsampled groundtruth waveforms",
            "rishikksh20/Avocodo-pytorch/pull/2",
        ),
        "each judge of a vocoder judges the same real waves for both kinds of made ones",
        "a module that runs again on the same input, and its backward: use the first scores",
    ),
    Flaw(
        "alignment_cell_by_cell",
        thread(
            "Why is tslearn.metrics.dtw(gpu) much slower than dtadistance.dtw(cpu)?",
            "tslearn-team/tslearn/issues/534",
        ),
        "the soft cost of aligning series is computed cell by cell of a table of 20 x 20",
        "many small launches from a loop over cells, and their backward: all cells of a diagonal "
        "at once",
    ),
    Flaw(
        "sampled_keys_expanded",
        thread("Time Cost of ProbSparse attention", "zhouhaoyi/Informer2020/issues/142"),
        "a sparse attention gathers 30 drawn keys for each query, and multiplies each query by its "
        "own",
        "keys are gathered and written for each query, products of one row: one product with all "
        "keys, of which the drawn scores are picked",
    ),
    Flaw(
        "words_unique_on_cpu",
        thread(
            "Stop copying tensors to CPU for torch.unique() in vocab reduction",
            "pytorch/translate/pull/537",
        ),
        "a translator copies 160,000 likely words to the CPU, to seek the unique ones there",
        "the GPU is idle while the CPU seeks (unique), blocking copies: unique on the device",
    ),
    Flaw(
        "cache_restored_each_token",
        thread(
            "perf(decode): persistent FP16 dequant cache for TurboQuant path A",
            "ekryski/mlx-swift-lm/issues/160",
        ),
        "before each token all keys and values of a cache in 8 bits are made bfloat16 again",
        "repeated work on values that do not change, casts and elementwise work on the whole "
        "cache: keep the restored cache, and add the new token",
    ),
    Flaw(
        "errors_measured_twice",
        thread(
            "Change order of updates in metric forward to increase efficiency",
            "Lightning-AI/torchmetrics/issues/126",
        ),
        "a metric of depths computes the errors of each batch twice, for the batch and for all",
        "the same values are computed again, elementwise operations that run twice: add the result "
        "of the batch",
    ),
)

ROLLING = (
    Flaw(
        "old_policy_by_forward",
        thread(
            "Remove unnecessary model forward passes in logprob phase in GRPO",
            "NVIDIA-NeMo/RL/issues/1186",
        ),
        "the old policy's log-probabilities come from a forward of their own, with the weights "
        "that the training forward has",
        "a model that runs again on the same input: detach those of the training forward",
    ),
    Flaw(
        "step_counters_moved",
        thread(
            "perf: keep scalar optimizer step counters on CPU in state offload",
            "PrimeIntellect-ai/prime-rl/pull/3258",
        ),
        "the state of AdamW is moved to the GPU with its counters of steps, which are then read "
        "from there",
        "the CPU waits for the GPU for each parameter (item, in the optimizer): counters stay on "
        "the CPU, or fused=True",
    ),
    Flaw(
        "generated_again_for_critic",
        thread(
            "Repeated calls to generator and discriminator's forward in GAN tutorial",
            "Lightning-AI/tutorials/issues/306",
        ),
        "a generator makes the same images for the critic's loss and for its own",
        "a module that runs again on the same input: keep the images, and detach them for the "
        "critic",
    ),
    Flaw(
        "inputs_repeated_for_experts",
        thread("Optimize MoE routing for Gemma4", "AI-Hypercomputer/maxtext/pull/4900"),
        "words are repeated for their eight experts before they are put into the experts' order",
        "copies of all words by repeat_interleave before a gather, and their backward: gather "
        "from the words themselves",
    ),
    Flaw(
        "threshold_by_kthvalue",
        thread("kthvalue 20x slower than sort", "pytorch/pytorch/issues/75599"),
        "the limit of the largest hundredth of all gradients is sought by torch.kthvalue",
        "kthvalue of one long row is a slow kernel of one block: sort, topk, or a limit by a "
        "sample",
    ),
    Flaw(
        "counts_of_padding",
        thread("torch.bincount is very slow on CUDA", "pytorch/pytorch/issues/96626"),
        "bincount counts the words of eight million places, of which most are padding",
        "atomic sums wait for each other at one bin: leave padding out, or sort and search",
    ),
)

ENERGIES = (
    Flaw(
        "hessian_for_its_trace",
        thread(
            "`vmap(jacrev)` is slower than `functional.jacobian`", "pytorch/functorch/issues/328"
        ),
        "the Laplacian of a network is the trace of its whole Hessian",
        "work that nobody uses (all but the diagonal of a matrix), and its backward: carry the sum "
        "of second derivatives through the layers",
    ),
    Flaw(
        "forces_not_read",
        thread(
            "Energy only evaluations with pretrained_mlip",
            "facebookresearch/fairchem/issues/1713",
        ),
        "a potential computes forces with each energy, which a screening does not read",
        "a backward whose result nobody uses: energies alone, without a graph",
    ),
    Flaw(
        "stress_by_second_backward",
        thread("fix(models): merge force and stress autograd", "NVIDIA/nvalchemi-toolkit/pull/88"),
        "forces and stress of a potential come from two passes back through the same graph",
        "repeated backward passes through the same graph, and theirs: one call of autograd.grad "
        "for both",
    ),
    Flaw(
        "references_by_one_hot",
        thread(
            "perf(pyg): lower-overhead Potential and AtomRef forward paths",
            "materialyzeai/matgl/pull/783",
        ),
        "the reference energy of each of 400,000 atoms is a sum of one-hot rows times all 95 "
        "energies",
        "one-hot rows, copies by repeat, a product and a sum of them: look the energies up",
    ),
    Flaw(
        "kernel_factored_per_draw",
        thread(
            "Efficient posterior update and posterior sampling in Gaussian processes",
            "pyro-ppl/pyro/issues/1258",
        ),
        "a Gaussian process computes and factors the kernel of its 2048 points for each draw",
        "repeated work with the same result (a kernel, a Cholesky factor): factor it once",
        differs="each draws its own numbers",
    ),
    Flaw(
        "covariance_of_all_points",
        thread(
            "Exact GPs should compute test and train kernel matrices separately at test time",
            "cornellius-gp/gpytorch/issues/135",
        ),
        "the kernel of known and asked points is computed for all pairs, also of asked points, of "
        "which the diagonal is read",
        "work that nobody uses (a block of a matrix), elementwise operations on it: blocks by "
        "themselves",
    ),
)

SHAPING = (
    Flaw(
        "neighbours_per_layer",
        thread("Dynamic or Static Graph", "GrumpyZhou/pytorch-dgcnn/issues/3"),
        "each of four layers seeks the nearest neighbours of the same points",
        "the same values are computed again in each layer (distances, topk): seek them once",
    ),
    Flaw(
        "poses_inverted_checked",
        thread(
            "Remove sync point by switching from inv to inv_ex",
            "openvdb/fvdb-reality-capture/pull/309",
        ),
        "the pose of each of 48 views is inverted by linalg.inv, which looks at an error code",
        "the CPU waits for the GPU at each inverse (a check of errors): inv_ex, or all poses at "
        "once",
    ),
    Flaw(
        "text_mask_all_true",
        thread("[core] Hunyuan Video", "huggingface/diffusers/pull/10136"),
        "a video transformer gives a mask of all pairs to attention, which hides nothing",
        "attention took a slower kernel because of the mask: no mask",
    ),
    Flaw(
        "mask_losses_outside_boxes",
        thread(
            "sum() instead of mean() in segmentation loss", "ultralytics/ultralytics/issues/3159"
        ),
        "the loss of each of 1600 masks is computed for all pixels, and cut to the object's box",
        "work on pixels whose loss a mask makes zero, and its backward: the pixels of the box",
    ),
    Flaw(
        "frequencies_from_cpu",
        thread(
            "create timestep embedding tensor on device",
            "Stability-AI/stablediffusion/pull/375",
        ),
        "each denoising makes the frequencies of its time on the CPU, and copies them to the GPU",
        "small blocking copies to the device, the CPU waits for the GPU: make them on the device, "
        "or keep them",
    ),
    Flaw(
        "basis_of_fixed_cloud",
        thread("fit the training data", "FabianFuchsML/se3-transformer-public/issues/4"),
        "spherical harmonics and waves of the pairs of a cloud that does not change are computed "
        "in each step",
        "constants that are computed again, elementwise operations: keep the basis",
    ),
)

TWELFTH = {
    flaw.name: flaw for group in (DETECTING, VOICING, ROLLING, ENERGIES, SHAPING) for flaw in group
}
