"""The eleventh collection of flaws, which no rule was written for before it had run.

It was made by somebody who had read the names and words of the other catalogues, a few programs for
the form, and the names of the rules, and neither rules nor results. Threads on speed were searched
by field, by operation and by setting in 88 queries, nearly all of them among threads. Those were
taken that name an operation that is slow or needless, and whose cause no earlier collection has in
a like model; most threads only ask why something is slow, and were left out. Threads were read in
the excerpts that the search shows, not to their end; where an excerpt names the function that was
slow, and not its lines, the program has them as such functions are usually written
(`history_rolled`, `learner_deepcopied`, `views_blurred_whole`, `users_scored_one_by_one`). Many
programs are smaller or simpler than what the threads are about: `positions_packed_by_text` has no
masks between texts, `triangle_inverted_by_row` no decay, `student_normalized_over_all` a few words
of the teacher for each place in place of one set of them, `edge_weights_written` a few kinds of
bonds, `angles_of_far_pairs` neighbours that are sorted by distance, `windows_padded_per_block` one
resolution, `vocoder_deterministic` no critics. Some remedies are not those of the thread, which
asks, moves work to the CPU, or changes more: `edge_weights_written`, `joints_by_edges`,
`history_rolled`, `determinants_each_forward` (factors of the matrices), `stretches_by_eigvalsh` (a
closed form), `norms_as_diagonals` (its thread is about exactness). Some threads measured another
device, an older torch or memory rather than time. More than half have a cause that an earlier
collection has in another model (waits, loops, work of the CPU, work that is repeated or not used),
as what users meet repeats. Five depend on which kernels torch chooses today
(`stretches_by_eigvalsh`, `vocoder_deterministic`, `graphs_summed_in_bfloat16`,
`negatives_by_multinomial`, `determinants_each_forward`). Nothing was run on a GPU.
"""

from __future__ import annotations

from .flaw import Flaw, thread

__all__ = ["ELEVENTH"]

TEACHING = (
    Flaw(
        "student_normalized_over_all",
        thread(
            "perf(loss): avoid full-vocab student log-softmax in same-vocab top-k KD",
            "NVIDIA-NeMo/RL/pull/3314",
        ),
        "a distillation takes log-probabilities of all 131072 words in float32, gathers the 64 "
        "likeliest of the teacher, and normalizes them again",
        "a softmax, its cast and its backward over all words that cancels: gather logits first",
    ),
    Flaw(
        "entropy_not_used",
        thread(
            "Move entropy to comput log probs to reduce peak memory when calculating entropy.",
            "verl-project/verl/pull/1100",
        ),
        "PPO computes the entropy of all words' logits, and adds it to the loss with a weight of 0",
        "work whose result is multiplied by zero, and its backward: leave the entropy out",
    ),
    Flaw(
        "positions_packed_by_text",
        thread(
            "GRPO: sequence packing for the gradient logp path (default-on)",
            "unslothai/unsloth-zoo/pull/840",
        ),
        "positions in a row of packed texts are put together of an arange for each text, whose "
        "length is on the GPU",
        "the CPU waits for the GPU (int) for each text, small launches from a loop: "
        "repeat_interleave of where texts start, with output_size",
    ),
    Flaw(
        "advantages_by_group",
        thread(
            "[algo, perf] feat: Vectorize GRPO Advantage Estimator - 13\uff5e26x Speedup",
            "verl-project/verl/pull/3635",
        ),
        "GRPO collects the rewards of each of 64 prompts in a dictionary, and normalizes each of "
        "512 answers by itself",
        "many small launches from a loop over answers: sums by an index of the prompts",
    ),
    Flaw(
        "triangle_inverted_by_row",
        thread("faster chunk gated delta rule by torch ops", "vllm-project/vllm-ascend/pull/3309"),
        "a delta rule inverts triangles of 64 x 64 row by row in a loop of Python",
        "many small launches from a loop of 63 rows in each layer, copies of what is solved: "
        "solve_triangular",
    ),
    Flaw(
        "dora_norms_by_identity",
        thread("DoRA slow forward inference", "huggingface/peft/issues/2651"),
        "inference multiplies out each adapter by an identity matrix, adds it to the weights, and "
        "takes norms of their rows, in each call",
        "the same norms of constant weights in each call, a product with an identity: keep the "
        "norms, or merge the adapter",
    ),
)

PLAYING = (
    Flaw(
        "slices_sought_in_buffer",
        thread(
            "[BUG] Severe performance degradation of SliceSampler for large buffers",
            "pytorch/rl/issues/2669",
        ),
        "each step seeks where the episodes of a memory of 80 million moments start and end, to "
        "draw 512 slices",
        "the same search over the whole memory in each step, and the CPU waits for the GPU "
        "(nonzero, boolean masks): keep where episodes start",
    ),
    Flaw(
        "minibatches_moved_again",
        thread(
            "[RLLib] Make movement of tensors to device only happen once",
            "ray-project/ray/pull/36091",
        ),
        "PPO takes each minibatch of its four epochs from a rollout on the CPU, and copies it",
        "the GPU is idle while the CPU gathers rows, and blocking copies from pageable memory, "
        "four times of each row: copy the rollout once",
    ),
    Flaw(
        "history_rolled",
        thread("[Proposal] Observation Histories", "isaac-sim/IsaacLab/issues/1208"),
        "the last 32 observations of each of 8192 robots are rolled by one in each moment",
        "a copy of the whole history that only moves it: write into a ring",
    ),
    Flaw(
        "learner_deepcopied",
        thread("Faster clone_module.", "learnables/learn2learn/pull/127"),
        "meta-learning deep-copies its model for each of 16 tasks",
        "the GPU is idle while the CPU copies modules (deepcopy), a launch for each parameter: "
        "functional_call with weights of each task",
    ),
    Flaw(
        "arrays_stacked_by_tensor",
        thread(
            "data_collator.py:131: UserWarning: Creating a tensor from a list of numpy.ndarrays "
            "is extremely slow",
            "huggingface/transformers/issues/19822",
        ),
        "torch.tensor makes a batch of a list of 384 arrays, number by number",
        "the GPU is idle while the CPU makes a tensor: np.stack and from_numpy",
    ),
    Flaw(
        "users_scored_one_by_one",
        thread("Improve computation of ranking related metrics", "PreferredAI/cornac/issues/530"),
        "an evaluation scores 60,000 items and seeks the best 20 of them user by user",
        "many small launches from a loop over users, products with one vector: one product, mask "
        "and topk for all users",
    ),
)

LINKING = (
    Flaw(
        "edge_weights_written",
        thread("Improve `NNConv` runtimes", "pyg-team/pytorch_geometric/issues/602"),
        "a network makes a matrix of 48 x 48 for each of 160,000 bonds, of which there are eight "
        "kinds",
        "large temporaries (a matrix for each edge), products of one row with a matrix each: a "
        "matrix for each kind, and rows gathered of what they give",
    ),
    Flaw(
        "joints_by_edges",
        thread("loss.backward() is too slow", "pyg-team/pytorch_geometric/issues/9205"),
        "the 25 joints of 16,384 skeletons take means of their neighbours by edges, which all "
        "skeletons have alike",
        "messages of edges are gathered, written and added up: a product with the matrix of 25 x "
        "25 neighbours",
    ),
    Flaw(
        "graphs_summed_in_bfloat16",
        thread(
            "scatter_add is slow with fp16 inputs when the index tensor is concentrated",
            "rusty1s/pytorch_scatter/issues/279",
        ),
        "the features of 600,000 nodes are added up in bfloat16 for 24 graphs",
        "atomic sums of bfloat16 wait for each other at few rows: sums in float32",
        differs="sums in bfloat16 are rounded",
    ),
    Flaw(
        "path_bias_per_layer",
        thread(
            "About the GraphormerEncoderLayer and EdgeEncoding", "leffff/graphormer-pyg/issues/29"
        ),
        "each of twelve layers encodes the bonds on the paths between all pairs of atoms again",
        "repeated work on the same input, a module that runs again: one bias for all layers",
    ),
    Flaw(
        "negatives_by_multinomial",
        thread("Speed up sampling", "berenslab/contrastive-ne/issues/2"),
        "torch.multinomial draws 98,304 of 12 million points, which are all as likely",
        "multinomial normalizes and sums up all weights for each draw, by few blocks: randint",
        differs="other draws",
    ),
    Flaw(
        "angles_of_far_pairs",
        thread(
            "Accelerate angular AEV computation and reduce memory cost",
            "aiqm/torchani/pull/290",
        ),
        "angles are computed for all pairs of 48 neighbours, of which those of 14 are near enough",
        "work on pairs whose results a mask makes zero, and its backward: pairs of those within "
        "the smaller radius",
    ),
)

SURVEYING = (
    Flaw(
        "stretches_by_eigvalsh",
        thread(
            "`torch.linalg.eig` and `torch.linalg.eigh` 30-130x slower on 2.11.0+cu130 vs "
            "2.5.1+cu124",
            "pytorch/pytorch/issues/183806",
        ),
        "the stretches of 112 bodies are eigenvalues of 3 x 3 matrices by eigvalsh",
        "an op that launches many kernels, or is slow, for small matrices: a closed form",
    ),
    Flaw(
        "spectra_shifted",
        thread('Update function "custom" in classical.py', "kaanaksit/odak/pull/101"),
        "light is propagated by spectra that are shifted four times, there and back",
        "copies that only move data (fftshift), and their backward: shift the transfer function",
    ),
    Flaw(
        "projections_by_angle",
        thread("Vectorize for loop", "phernst/pytorch_radon/issues/3"),
        "images are turned by grid_sample and summed up angle by angle, for 180 angles",
        "many small launches from a loop over angles: one grid for all angles",
    ),
    Flaw(
        "views_blurred_whole",
        thread(
            "StarGuide projector: per-view slabs, batched views per angle, no host syncs (6x OSEM)",
            "PyTomography/PyTomography/pull/236",
        ),
        "a body is blurred whole for each of 24 views, which show 16 of its 192 columns",
        "work that nobody uses (a slice of what was computed), and its backward: blur the slab",
    ),
    Flaw(
        "norms_as_diagonals",
        thread("torch.bmm inaccurate", "antao97/UnsupervisedPointCloudReconstruction/issues/4"),
        "the squared lengths of 3072 points are the diagonal of all their products",
        "products of all pairs of which the diagonal is used, and their backward: sums of squares",
    ),
    Flaw(
        "windows_padded_per_block",
        thread(
            "perf(ptv3): build the attention padding for the whole batch at once",
            "tier4/autoware-ml/pull/122",
        ),
        "each of eight blocks computes where points go in windows, scan by scan, by slices with "
        "bounds on the GPU",
        "the CPU waits for the GPU (slices, a branch on a tensor), small launches from a loop, the "
        "same in each block: once, for all scans",
    ),
)

COMPOSING = (
    Flaw(
        "determinants_each_forward",
        thread("[performance] slogdet is slow on GPU", "didriknielsen/survae_flows/issues/5"),
        "each of 32 steps of a flow takes the determinant of its 48 x 48 matrix by slogdet",
        "an op of many small kernels, and its backward, launch-bound: matrices as products of "
        "triangles, whose diagonals tell it",
    ),
    Flaw(
        "text_keys_each_denoising",
        thread(
            "[Diffusion] cache cross-attn K/V across denoise steps for Helios",
            "sgl-project/sglang/pull/29755",
        ),
        "each of six turns of denoising computes keys and values of the same text in all layers",
        "repeated work on the same input, constants computed again: compute them once",
    ),
    Flaw(
        "style_seen_each_step",
        thread(
            "Cache computation of base style image gramians",
            "ProofByConstruction/texture-networks/issues/5",
        ),
        "a fixed network looks at the same picture of a style in each step",
        "a frozen network on the same input, constants computed again: keep what it gives",
    ),
    Flaw(
        "waves_multiplied_and_summed",
        thread("GPU version is very slow", "GistNoesis/FourierKAN/issues/2"),
        "a network of waves writes out the product of each input's waves with each output's "
        "weights, and sums it up",
        "a large temporary that is only summed up (a product of matrices written out), and its "
        "backward: F.linear",
    ),
    Flaw(
        "vocoder_deterministic",
        thread(
            'Default "cudnn_deterministic=true" may make the training extremely slow in specific '
            "environment.",
            "espnet/espnet/issues/3041",
        ),
        "a vocoder of transposed and dilated convolutions is trained with deterministic cuDNN",
        "a setting that rules out the fastest kernels of convolutions: turn it off",
        anywhere=True,
    ),
    Flaw(
        "hidden_states_in_sequence",
        thread("Implement parallelized DiscreteHMM distribution", "pyro-ppl/pyro/pull/1958"),
        "the likelihood of a hidden Markov model is summed up moment by moment, for 512 moments",
        "many small launches from a loop over moments: products of neighbours in pairs, in nine "
        "turns",
    ),
)

ELEVENTH = {
    flaw.name: flaw
    for group in (TEACHING, PLAYING, LINKING, SURVEYING, COMPOSING)
    for flaw in group
}
