"""The tenth collection of flaws, which no rule was written for before it had run.

It was made by somebody who had read the names and words of the other catalogues, a few programs for
the form, and the names of the rules, and neither rules nor results. Threads on speed were searched
by field, by operation and by setting in some eighty queries, and were taken as they came, unless
their cause was there already in a like model. Threads were read in the excerpts that the search
shows, not to their end; where an excerpt names the function that was slow, and not its lines, the
program has them as such functions are usually written (`rays_made_on_cpu`,
`neighbours_found_on_cpu`, `boxes_scanned_in_dataset`, `context_in_each_refinement`). Where a thread
uses what is not in plain PyTorch, or another framework, the same was put in its place:
`weights_standardized_by_means` and `camera_features_permuted` come from other frameworks,
`box_costs_by_cdist` takes the cheapest query in place of a Hungarian solver,
`experts_gathered_by_element` has experts that pick as many words each in place of a grouped
product, `actions_denoised_eagerly` and `equations_in_small_kernels` are remedied by a CUDA graph,
`equations_in_small_kernels` by a thread that asks why and does not answer,
`global_attention_by_hand` has no windows, `large_kernels_depthwise` is remedied by FFTs, and
`losses_as_numbers` compiles two blocks of a policy. Some threads measured another device, an older
torch or less memory rather than time. More than half have a cause that an earlier collection has in
another model (waits, loops, work of the CPU, small kernels, float64), as what users meet repeats.
Four depend on which kernels torch chooses today (`box_costs_by_cdist`, `large_kernels_depthwise`,
`experts_gathered_by_element`, `sparse_codes_decoded_densely`). Nothing was run on a GPU.
"""

from __future__ import annotations

from .flaw import Flaw, thread

__all__ = ["TENTH"]

SCORES = (
    Flaw(
        "losses_filtered_for_nan",
        thread(
            "Avoid device sync in training loss accumulation", "huggingface/transformers/pull/44123"
        ),
        "a trainer asks after each of eight micro-batches whether the loss is nan or infinite",
        "the CPU waits for the GPU after each micro-batch (a branch on a tensor): choose by where",
    ),
    Flaw(
        "similarities_by_mask",
        thread("refactor NTXent loss", "lightly-ai/lightly/pull/340"),
        "a contrastive loss picks right and wrong similarities of 4096 views by boolean masks",
        "the CPU waits for the GPU (nonzero of boolean masks), the backward of indexing is slow: "
        "fill the diagonal, and say by labels what is right",
    ),
    Flaw(
        "masks_one_hot_for_dice",
        thread(
            "Update evaluate.py (Optimize Dice computation by removing one-hot encoding)",
            "milesial/Pytorch-UNet/pull/528",
        ),
        "the Dice coefficient of 16 images takes one-hot masks of 21 classes of each pixel",
        "one_hot, casts, products and sums on large temporaries of pixels and classes: count by "
        "labels",
    ),
    Flaw(
        "evaluation_counted_by_item",
        thread(
            "Perf: Remove unnecessary GPU fetches inside loop", "numenta/nupic.research/pull/249"
        ),
        "an evaluation adds the loss and the right answers of each of 40 batches by item()",
        "the CPU waits for the GPU for each batch (item): add on the device",
    ),
    Flaw(
        "dropout_in_evaluation",
        thread("Put model in eval mode for evaluation", "meta-pytorch/torchtune/pull/1049"),
        "a decoder is evaluated without eval(), so that its dropout runs, also in attention",
        "dropout in inference, a model in training mode: model.eval()",
        differs="dropout draws",
    ),
)

TEXTS = (
    Flaw(
        "logprobs_of_sliced_logits",
        thread("Faster & memory-efficient logprobs calculation", "CarperAI/trlx/pull/583"),
        "PPO cuts off the last word's logits before log_softmax, which copies all others",
        "a copy that changes only the layout of all logits (log_softmax of a slice), and zeros "
        "around its gradient: cut off behind log_softmax",
    ),
    Flaw(
        "logits_of_prompts",
        thread(
            "Chunked cross-entropy loss for SFT (up to \u201350% VRAM)", "huggingface/trl/pull/5575"
        ),
        "fine-tuning computes logits of all words, of which three quarters are prompts, which the "
        "loss ignores",
        "logits that the loss ignores (head, cast and loss): the head on the words of answers only",
    ),
    Flaw(
        "micro_batches_unsorted",
        thread(
            "[fsdp,algo] feat: add use_length_grouped_bsz to reduce padding waste in FSDP training",
            "verl-project/verl/pull/5338",
        ),
        "texts of up to 1024 words are put into micro-batches in any order, and padded",
        "most words are padding: micro-batches of texts of like lengths",
        anywhere=True,
    ),
    Flaw(
        "adapters_in_float32",
        thread("Lora module layers - why float32?", "kohya-ss/sd-scripts/issues/1156"),
        "adapters of low rank are in float32 next to each layer of a frozen model in bfloat16",
        "casts of activations, products and their gradients in float32: adapters in bfloat16",
    ),
    Flaw(
        "experts_gathered_by_element",
        thread("perf(moe): speed up grouped MoE routing", "NVIDIA/cosmos-framework/pull/20"),
        "words go to their experts by gather, and back by scatter_add, with an index for each "
        "element",
        "gather and scatter_add are slow with an index for each element, atomic sums: index_select "
        "and index_add of rows",
    ),
    Flaw(
        "optimizer_not_fused",
        thread(
            "Training-speed quick wins across G0/G1: slow cdist cost kernels, device-sync storms, "
            "unfused optimizers",
            "LibreYOLO/libreyolo/issues/763",
        ),
        "AdamW updates 300 million weights as it does by default, in a dozen passes over them",
        "the foreach implementation passes over weights and states many times: fused=True",
    ),
    Flaw(
        "sparse_codes_decoded_densely",
        thread(
            "[Proposal] Optimize decoding in training using torch.nn.functional.embedding_bag",
            "decoderesearch/SAELens/issues/428",
        ),
        "a sparse autoencoder multiplies codes of 32768 features, of which 32 are not zero, by its "
        "decoder",
        "products with a matrix of zeros, and the large codes: embedding_bag of the features that "
        "are active",
    ),
)

PLACES = (
    Flaw(
        "box_costs_by_cdist",
        thread(
            "perf(models): build the matcher L1 box cost without `torch.cdist`",
            "roboflow/rf-detr/pull/1486",
        ),
        "a matcher computes distances of 28,800 boxes from 320 by cdist with p=1, for five layers",
        "the kernel of cdist is slow for few coordinates: sum up the differences by broadcasting",
    ),
    Flaw(
        "targets_packed_per_image",
        thread(
            "Vectorize preprocess for `detect/obb` loss calculation",
            "ultralytics/ultralytics/pull/23966",
        ),
        "the objects of each of 64 images are found by a boolean mask, counted, and put into a row",
        "the CPU waits for the GPU (unique, a branch on a sum, a boolean mask), many small "
        "launches from a loop over images: write all objects by one index",
    ),
    Flaw(
        "camera_features_permuted",
        thread(
            "[BEVFormer] Hoist the SCA camera permute out of the layer loop",
            "tenstorrent/tt-metal/issues/55208",
        ),
        "each of six layers puts the features of all cameras into the same other order",
        "copies that change only the layout, the same in each layer, and their backward: permute "
        "once before the layers",
    ),
    Flaw(
        "large_kernels_depthwise",
        thread(
            "Efficient very large (e.g., 31x31) depth-wise convolution",
            "pytorch/pytorch/issues/74363",
        ),
        "each channel is convolved with a kernel of 31 x 31",
        "a depthwise convolution, and its backward, is slow for its large kernel: by FFT",
    ),
    Flaw(
        "boxes_scanned_in_dataset",
        thread("About the implementation of NpzDataset", "bowang-lab/MedSAM/issues/30"),
        "a dataset seeks the box of a mask by numpy.where each time that it gives an image",
        "idle while waiting for the data loader, the CPU scans masks of a megapixel: boxes found "
        "once, or workers",
    ),
    Flaw(
        "global_attention_by_hand",
        thread("feat: Add Flash-Attention Support", "MouseLand/cellpose/pull/1429"),
        "the attention of a segmenter over 4096 patches is written out, and biases for rows and "
        "columns are added to its scores",
        "attention by hand (product, sums, softmax, product) on large scores: "
        "scaled_dot_product_attention with the biases as a mask",
    ),
    Flaw(
        "weights_standardized_by_means",
        thread("Make weight standardization faster", "chainer/chainer/pull/7963"),
        "each convolution standardizes its weights by three means, a deviation and a quotient",
        "many small elementwise operations and reductions on weights that are not fused, "
        "launch-bound: one batch norm of the weights, or compile",
    ),
)

FIELDS = (
    Flaw(
        "rays_made_on_cpu",
        thread("create rays on device when rendering", "nerfstudio-project/nerfstudio/pull/993"),
        "the rays of all pixels of each frame are made on the CPU and copied to the GPU",
        "idle while the CPU makes tensors, and blocking copies of them: make rays on the device",
    ),
    Flaw(
        "anomalies_in_radiance_field",
        thread(
            "torch.autograd.set_detect_anomaly(True) seems slow down the training",
            "yenchenlin/nerf-pytorch/issues/42",
        ),
        "a radiance field is trained with anomaly detection left on",
        "anomaly detection (checks of each gradient, waits): turn it off",
        anywhere=True,
    ),
    Flaw(
        "radiographs_in_double",
        thread("Change default dtype", "eigenvivek/DiffDRR/issues/122"),
        "radiographs are computed from a volume in float64, the dtype of its data",
        "float64 arithmetic and traffic: float32",
        anywhere=True,
    ),
    Flaw(
        "neighbours_found_on_cpu",
        thread(
            "Add GPU-accelerated neighbor list construction (10\u00d7 faster for large systems)",
            "ACEsuit/mace/issues/1296",
        ),
        "a potential copies the places of 1080 atoms to the CPU, where numpy seeks near pairs",
        "the GPU is idle while the CPU computes, the CPU waits for copies: pairs on the device",
    ),
    Flaw(
        "equations_in_small_kernels",
        thread(
            "Why is Neural Ode training faster in CPU than in GPU?",
            "DiffEqML/torchdyn/issues/161",
        ),
        "a neural equation runs a small network 64 times in each step, and backward through it",
        "launch-bound, many small launches from a loop: a CUDA graph, or compile",
        anywhere=True,
    ),
    Flaw(
        "context_in_each_refinement",
        thread("Improve performance of RAFT", "ailia-ai/ailia-models/issues/728"),
        "the context of the first frame is encoded again in each of twelve refinements of a flow",
        "repeated work on the same input, a module that runs again: encode the context once",
    ),
)

ACTS = (
    Flaw(
        "losses_as_numbers",
        thread(
            "perf(policies): Make ACT policy compatible with `torch.compile`",
            "huggingface/lerobot/pull/2159",
        ),
        "a compiled policy returns its losses as numbers of Python, by item() in its forward",
        "graph breaks, or the CPU waits for the GPU (item): return the losses as tensors",
    ),
    Flaw(
        "actions_denoised_eagerly",
        thread(
            "perf(fastwam): add compiled cached action inference", "huggingface/lerobot/pull/4491"
        ),
        "a robot's 32 actions are denoised in ten turns of eager code",
        "launch-bound, small kernels: CUDA graphs, compile with reduce-overhead",
        anywhere=True,
    ),
    Flaw(
        "query_norms_by_hand",
        thread(
            "[vla, diffusion] perf: fuse FastWAM DiT q/k RMSNorm into F.rms_norm",
            "baidu-baige/LoongForge/pull/136",
        ),
        "each block normalizes queries and keys by six operations in float32",
        "elementwise operations and casts that are not fused: F.rms_norm, or compile",
    ),
    Flaw(
        "chunks_repeated_per_speaker",
        thread(
            "improve(pipeline): extract embeddings once per chunk instead of once per (chunk, "
            "speaker) pair",
            "pyannote/pyannote-audio/pull/2051",
        ),
        "each chunk of sound passes a network once for each of its three speakers, whose masks "
        "only the pooling reads",
        "repeated work on the same input (repeat_interleave): the network once for each chunk",
    ),
    Flaw(
        "segments_embedded_one_by_one",
        thread(
            "feat: enable batched SV inference for speaker diarization",
            "Quantatirsk/qwen3-asr/pull/45",
        ),
        "the voices of 32 segments are embedded segment by segment",
        "launch-bound, many small launches from a loop over segments: put segments into a batch",
    ),
)

TENTH = {flaw.name: flaw for group in (SCORES, TEXTS, PLACES, FIELDS, ACTS) for flaw in group}
