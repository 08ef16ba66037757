"""The second collection of flaws, which no rule was written for.

It was made after the rules were judged on the first, by somebody who had read that list and its
programs, but neither the rules nor their results on it. What is here has another cause, or code of
another kind: other models, other libraries, as their own threads show it.
"""

from __future__ import annotations

from .flaw import TORCH_DOCS, Flaw, Source, thread

__all__ = ["SECOND"]

DETECTION = (
    Flaw(
        "targets_one_by_one",
        thread(
            "torchvision, references/detection/engine.py",
            "pytorch/vision/blob/main/references/detection/engine.py",
        ),
        "the boxes, labels and areas of each of 32 images are moved to the GPU one by one",
        "many small blocking copies to the device: collate them into one, pinned, non_blocking",
    ),
    Flaw(
        "nms_per_class",
        thread(
            "Speed up NMS: collapse per-class loops to batched_nms", "LibreYOLO/libreyolo/pull/203"
        ),
        "overlapping boxes are suppressed in a loop over 80 classes",
        "many small launches from a loop: suppress the boxes of all classes at once",
    ),
    Flaw(
        "confusion_matrix",
        thread(
            "Validation with torchmetrics extremely slow",
            "Lightning-AI/torchmetrics/issues/1413",
        ),
        "each step counts predictions by a boolean mask and torch.bincount",
        "the CPU waits for the GPU (nonzero, bincount): counts of a fixed size, or rarely",
    ),
    Flaw(
        "backward_per_loss",
        thread("Support sequence of losses in backwards pass", "mosaicml/composer/pull/1240"),
        "each of two losses has a backward of its own through the layers that they share",
        "the backward of the shared layers runs twice: add the losses, one backward",
    ),
    Flaw(
        "autocast_inside_loop",
        thread("RAFT, core/raft.py", "princeton-vl/RAFT/blob/master/core/raft.py"),
        "autocast is entered in each of 12 refinements, which casts their weights again",
        "casts of weights: one autocast around the loop, or weights in bfloat16",
    ),
    Flaw(
        "conv_bn_not_folded",
        thread("pytorch_bn_fusion", "oulu-imeds/pytorch_bn_fusion"),
        "inference runs each batch norm behind its convolution",
        "batch norms in inference: fold them into the convolutions",
    ),
)

GENERATION = (
    Flaw(
        "discriminator_gradients",
        thread("About the 'set_requires_grad'", "junyanz/pytorch-CycleGAN-and-pix2pix/issues/594"),
        "the generator's backward computes gradients of the discriminator's weights, too",
        "gradients that nobody reads: requires_grad_(False) for the discriminator meanwhile",
    ),
    Flaw(
        "sigmas_by_timestep",
        thread(
            "Suggestion for speeding up index_for_timestep by removing sequential nonzero() calls",
            "huggingface/diffusers/issues/9417",
        ),
        "the noise level of each sample is looked up by nonzero().item()",
        "the CPU waits for the GPU in a loop over samples: index by a tensor",
    ),
    Flaw(
        "weight_norm_in_inference",
        thread(
            "Ensure remove weight norm actually removes the weight computation from the inference "
            "network",
            "NVIDIA/waveglow/pull/21",
        ),
        "a vocoder computes its weights from their norms in each call",
        "weights are recomputed from parametrizations in inference: remove_parametrizations",
    ),
)

SEQUENCES = (
    Flaw(
        "pointwise_conv1d",
        thread(
            "Isn't Conv1D with kernel=1 the same as Linear layer but slower?",
            "openspeech-team/openspeech/issues/163",
        ),
        "the feed-forward layers are convolutions of kernel 1 between transposes",
        "convolutions of kernel 1 and copies that change only the layout: nn.Linear",
    ),
    Flaw(
        "fft_length",
        thread("Improve _fft_convolve", "cupy/cupy/pull/3560"),
        "convolutions by FFTs of length 1999, a prime",
        "FFTs are slow for their length: pad to a product of small primes, or to 2048",
    ),
    Flaw(
        "packed_lengths",
        thread("LSTM slow on PackedSequence", "pytorch/pytorch/issues/149194"),
        "an LSTM runs on a PackedSequence, whose lengths are copied from the GPU",
        "the LSTM took a slower kernel for packed input (and the CPU waits): pad, mask the loss",
    ),
    Flaw(
        "pairwise_broadcast",
        thread(
            "pairwise distance computation with smaller memory footprint",
            "Maghoumi/pytorch-softdtw-cuda/pull/23",
        ),
        "distances between all moments are the sum of a difference of n x m x 64 numbers",
        "a large temporary of a broadcast, elementwise work: a product, or torch.cdist",
    ),
)

GEOMETRY = (
    Flaw(
        "farthest_point_loop",
        thread(
            "Does it slow since it do not implement the FPS and Query_ball in cuda?",
            "yanx27/Pointnet_Pointnet2_pytorch/issues/50",
        ),
        "farthest point sampling is a Python loop over 128 points",
        "many small launches, launch-bound: a CUDA graph, compile, or a kernel of its own",
    ),
    Flaw(
        "gather_scatter_messages",
        Source(
            "PyG, Memory-Efficient Aggregations",
            "https://pytorch-geometric.readthedocs.io/en/latest/advanced/sparse_tensor.html",
        ),
        "a message for each of 1.2 million edges is gathered, written and scattered",
        "gather and scatter of messages: a product with the sparse adjacency matrix",
    ),
)

SMALL = (
    Flaw(
        "bag_by_embedding",
        Source("EmbeddingBag", f"{TORCH_DOCS}/generated/torch.nn.modules.sparse.EmbeddingBag.html"),
        "60 embeddings of each user are looked up, written and averaged",
        "embeddings that are only reduced: nn.EmbeddingBag",
    ),
    Flaw(
        "distribution_validation",
        thread(
            "Disable torch distribution argument validation to improve performance",
            "Toni-SM/skrl/pull/233",
        ),
        "torch.distributions checks its arguments in each minibatch of PPO",
        "the CPU waits for the GPU to check arguments: validate_args=False",
    ),
)

LANGUAGE = (
    Flaw(
        "mlm_head_everywhere",
        thread("Masked prediction", "AnswerDotAI/ModernBERT/pull/103"),
        "the head of a masked language model scores all tokens, of which 15% are masked",
        "logits that the loss ignores: the head on masked tokens only",
    ),
    Flaw(
        "dispatch_by_one_hot",
        thread(
            "MoE dispatch: fix silent Tutel + TP corruption, speed up native and Tutel paths",
            "deepspeedai/DeepSpeed/pull/8195",
        ),
        "tokens go to their experts and back by products with one-hot tensors",
        "products with one-hot tensors: index_copy and index_select, or scatter and gather",
    ),
    Flaw(
        "scaler_with_bfloat16",
        thread("do not scale gradient in bf16 mode", "huggingface/transformers/pull/21428"),
        "a GradScaler scales the loss of bfloat16, checks all gradients and waits",
        "GradScaler (unscaling, a wait for its check) is not needed in bfloat16: remove it",
    ),
    Flaw(
        "newton_schulz_per_matrix",
        thread(
            "8x faster MuSGD optimizer step with batched Newton-Schulz",
            "ultralytics/ultralytics/pull/25288",
        ),
        "Muon makes 48 updates orthogonal one by one",
        "a loop over parameters of small products: stack those of a shape, batched products",
    ),
    Flaw(
        "drop_path",
        thread("Effective drop path", "huggingface/pytorch-image-models/issues/1836"),
        "branches are computed for all samples, and zeroed for 40% of them",
        "work whose result is multiplied by zero: run a branch on the samples that keep it",
        differs="other samples are dropped",
    ),
    Flaw(
        "patch_conv3d",
        thread(
            "[inference_fusion] convert conv3d patch embed to linear",
            "huggingface/transformers/pull/45041",
        ),
        "patches are embedded by a 3D convolution that covers each patch once",
        "a convolution is slow for its shape: a linear layer of the flattened patches",
    ),
)

COMPILATION = (
    Flaw(
        "cpu_scalar_skips_graphs",
        thread("flux torch compilation broken again on 2.6.0", "Comfy-Org/ComfyUI/issues/6866"),
        "a model compiled with reduce-overhead reads a scalar tensor of the CPU: no CUDA graph",
        "CUDA graphs are skipped for a tensor of the CPU, launch-bound: move it to the GPU",
        anywhere=True,
    ),
    Flaw(
        "complex_rotary",
        thread(
            "Rope embeddings with complex number generates compile warning",
            "pytorch/torchtitan/issues/15",
        ),
        "compiled blocks rotate queries and keys as complex numbers, which are not fused",
        "operations on complex numbers are not compiled: write them with real numbers",
    ),
    Flaw(
        "step_counter",
        thread(
            "[dynamo] Recompilation on a counter-like attribute of nn module",
            "pytorch/pytorch/issues/128319",
        ),
        "a compiled loss counts its steps in an int: it is recompiled, then runs eagerly",
        "recompilation, or eager code that was to be compiled: count in a tensor",
    ),
    Flaw(
        "block_mask_per_layer",
        thread(
            "flex_attention can spend >10x time in create_block_mask vs actual attention",
            "meta-pytorch/attention-gym/issues/149",
        ),
        "each layer makes the same block mask of documents for flex_attention",
        "create_block_mask is repeated work, many launches: once for all layers, or compile it",
    ),
)

DECODING = (
    Flaw(
        "full_sort_sampling",
        thread("[Misc] optimize sampler with top_p=1 and top_k>0", "vllm-project/vllm/pull/5698"),
        "sampling among the 50 likeliest tokens sorts all 128256",
        "a sort of the whole vocabulary: topk",
    ),
    Flaw(
        "repeat_kv",
        thread("Use PyTorch's built-in GQA support", "karpathy/nanochat/pull/127"),
        "keys and values of the cache are copied for each of the four heads that share them",
        "copies of keys and values: enable_gqa=True",
    ),
    Flaw(
        "lora_unmerged",
        thread(
            "Issues with loading and unload multiple adapter for inference?",
            "huggingface/peft/issues/957",
        ),
        "inference runs an adapter of low rank beside each layer",
        "small products and additions beside each layer: merge the adapters",
    ),
)

SECOND = {
    flaw.name: flaw
    for group in (
        DETECTION,
        GENERATION,
        SEQUENCES,
        GEOMETRY,
        SMALL,
        LANGUAGE,
        COMPILATION,
        DECODING,
    )
    for flaw in group
}
