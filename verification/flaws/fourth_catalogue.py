"""The fourth collection of flaws, which no rule was written for before it had run.

It was made by somebody who had read the first three catalogues and a few of their programs for the
form, and neither the rules nor the results, but who saw the names of three rules in `test_flaws`.
Its causes are those of threads on speed, whatever a tool finds: eight leave no trace but work that
need not be done.
"""

from __future__ import annotations

from .flaw import TORCH_DOCS, Flaw, Source, thread

__all__ = ["FOURTH"]

PICTURES = (
    Flaw(
        "spp_large_pools",
        thread("Add `SPPF()` layer", "ultralytics/yolov5/pull/4420"),
        "pools of 5, 9 and 13 pixels run side by side",
        "pools of large windows, or their backward: pools of 5 in a row give the same",
    ),
    Flaw(
        "same_padding_copies",
        thread(
            "Remove unnecessary Conv2dSamePadding in EfficientNet",
            "facebookresearch/ClassyVision/pull/732",
        ),
        "each depthwise convolution pads its input by F.pad, a copy, though it is symmetric",
        "copies for padding before convolutions: the argument padding",
    ),
    Flaw(
        "channel_shuffle_layout",
        thread("add channels last support for ChannelShuffle", "pytorch/pytorch/pull/50247"),
        "shuffling channels makes tensors contiguous in a network with channels last",
        "layout conversions around convolutions, or copies: shuffle with channels last",
    ),
    Flaw(
        "erasing_per_image",
        thread("Add batch-wise random erasing support?", "pytorch/vision/issues/3206"),
        "a rectangle of each of 512 images on the GPU is filled in a loop",
        "many small launches from a loop, launch-bound: one mask for all images",
        differs="other rectangles are erased",
    ),
    Flaw(
        "ssim_window_2d",
        thread("Use separable filter for SSIM calculation to speed up.", "kornia/kornia/pull/2383"),
        "the Gaussian window of SSIM is a convolution of 11 x 11 in each channel",
        "a convolution is slow for its kernel: two convolutions, 11 x 1 and 1 x 11",
    ),
    Flaw(
        "pruning_mask_each_step",
        thread("Implementation of Top-KAST pruning algorithm", "neuralmagic/sparseml/pull/1674"),
        "the largest 20% of the weights of each layer are sought in each step",
        "topk or sorting of weights in each step: refresh the mask every so many steps",
        differs="a mask lags by up to 15 steps",
    ),
)

SYNTHESIS = (
    Flaw(
        "long_kernel_convolved",
        thread(
            "Slow convolution with large kernels, should be using FFT",
            "pytorch/pytorch/issues/21462",
        ),
        "echoes of 2048 taps are added by conv1d",
        "a convolution is slow for its kernel: by FFT",
    ),
    Flaw(
        "sketches_by_full_fft",
        thread("Update __init__.py", "gdlg/pytorch_compact_bilinear_pooling/pull/12"),
        "real sketches of features are multiplied as complex spectra of full length",
        "complex FFTs, products and copies of real numbers: rfft and irfft",
    ),
    Flaw(
        "video_channels_first",
        thread("Add channels_last_3d optimization for VAE Conv3d", "ModelTC/LightX2V/pull/860"),
        "the decoder of a video VAE runs in bfloat16 in NCDHW",
        "layout conversions around convolutions, or slow kernels: channels_last_3d",
    ),
    Flaw(
        "latents_encoded_each_step",
        thread(
            "[Advanced Diffusion Training] Cache latents to avoid VAE passes for every training "
            "step",
            "huggingface/diffusers/pull/6076",
        ),
        "a frozen VAE encodes the same images again in each step",
        "repeated work with the same result, a frozen model in each step: cache the latents",
    ),
    Flaw(
        "attention_order",
        thread(
            "Changed order of operations to reduce run time", "sdoria/SimpleSelfAttention/pull/1"
        ),
        "x (x^T (W x)) makes a matrix of all pairs of 4096 pixels",
        "products through a large matrix: (x x^T) (W x), of which the first is 64 x 64",
    ),
    Flaw(
        "alignments_in_list",
        thread("tacotron2 hit recompilation cache limit", "pytorch/torchdynamo/issues/330"),
        "a compiled step appends to a list, on whose length its code depends: at the recompile "
        "limit it runs eagerly",
        "recompilation, or eager code that was to be compiled: append outside of it",
    ),
)

TUNING = (
    Flaw(
        "adapters_by_parametrization",
        thread(
            "LoRA/DoRA fast forward: no weight materialization (1.6-2.0x on MPS)",
            "Stability-AI/stable-audio-3/pull/69",
        ),
        "adapters of low rank are added to whole weights in each call, whose gradients are whole",
        "weights are rebuilt in each call, gradients of frozen weights: two small products beside "
        "the layer",
    ),
    Flaw(
        "reference_scored_each_step",
        thread("Precompute DPO logprobs", "allenai/open-instruct/issues/213"),
        "the frozen reference model of DPO scores the texts in each step",
        "repeated work with the same result, a frozen model in each step: compute its scores once",
    ),
    Flaw(
        "pow_in_autocast",
        Source(
            "torch.amp, CUDA ops that autocast to float32",
            f"{TORCH_DOCS}/amp.html#cuda-ops-that-autocast-to-float32",
        ),
        "the squared ReLU is x.pow(2), which autocast runs in float32",
        "casts to float32 and back around pow, elementwise work in float32: x * x",
    ),
    Flaw(
        "window_as_dense_mask",
        thread(
            "SDPA fallback: sliding window doesn't reduce memory (full mask built regardless of "
            "window size)",
            "karpathy/nanochat/issues/825",
        ),
        "a window of 256 tokens is given as a mask of 4096 x 4096, which each layer makes",
        "attention took a slower kernel because of the mask, and computes what it hides: "
        "attention by chunks, or flex_attention",
    ),
    Flaw(
        "debug_strings",
        thread("Remove f-string in logging statement", "NVIDIA-NeMo/Emerging-Optimizers/pull/255"),
        "an optimizer formats a tensor of each parameter for a log that is off",
        "the CPU waits for the GPU to format a tensor: pass it to the logger as an argument",
    ),
    Flaw(
        "crf_score_loop",
        thread("Faster forward pass + tests on GPU", "kmkurn/pytorch-crf/pull/123"),
        "the score of the right tags is summed in a Python loop over 64 words",
        "many small launches from a loop, launch-bound: gather all at once",
    ),
)

SERVING = (
    Flaw(
        "prompt_per_beam",
        thread(
            "Compute logits and past_key_values once for the initial context rather than "
            "`num_beams` times?",
            "huggingface/transformers/issues/27449",
        ),
        "beam search reads each prompt once for each of its four beams",
        "repeated work on the same tokens, equal rows: read each prompt once, repeat its cache",
        anywhere=True,
    ),
    Flaw(
        "cross_keys_each_token",
        thread("cache enc kv proj for cross-attention", "FireRedTeam/FireRedASR/pull/106"),
        "each token computes keys and values of all frames of the encoder again",
        "repeated work with the same result: compute keys and values of the encoder once",
    ),
    Flaw(
        "ngrams_in_python",
        thread(
            "Vectorize NoRepeatNGramLogitsProcessor and remove its host sync",
            "huggingface/transformers/pull/47571",
        ),
        "after each token the 3-grams of each text are collected in a dictionary of Python",
        "the CPU waits for the GPU (tolist), idle while Python runs: compare all 3-grams on the "
        "device",
    ),
    Flaw(
        "weights_cast_each_call",
        thread(
            "[Fun-CosyVoice3] Cast the DiT weights to the autocast dtype once at load",
            "sgl-project/sglang-omni/pull/2262",
        ),
        "frozen float32 weights are cast by autocast in each of four calls of a flow",
        "casts of weights: weights in bfloat16",
    ),
    Flaw(
        "neighbours_from_cpu_zeros",
        thread("Update knn_datastore.py", "zhengxxn/adaptive-knn-mt/pull/9"),
        "each token makes zeros for the whole vocabulary on the CPU and copies them to the GPU",
        "idle while the CPU makes a tensor, or its copy: create it on the device",
    ),
)

CONTROL = (
    Flaw(
        "edges_concatenated",
        Source(
            "DGL, Writing Efficient Message Passing Code",
            "https://www.dgl.ai/dgl_docs/guide/message-efficient.html",
        ),
        "a linear layer runs on the concatenated ends of each of 300,000 edges",
        "products over edges, copies of concatenated features: two products over the nodes",
    ),
    Flaw(
        "adjacency_coo",
        thread(
            "[Problem] COO Sparse Tensor Multiplication Is Very Slow.",
            "DeepGraphLearning/torchdrug/issues/173",
        ),
        "each layer makes a COO matrix of the edges, which is sorted before each product",
        "sorting of edges in each product: a CSR matrix that is made once",
    ),
    Flaw(
        "counts_unknown",
        thread("Avoid repeat_interleave output-size sync", "pytorch/torchtitan/pull/3274"),
        "repeat_interleave by a tensor of counts asks for their sum in each layer",
        "the CPU waits for the GPU (repeat_interleave): output_size",
    ),
    Flaw(
        "replay_by_permutation",
        thread("Slow sampling from expert dataset in IRL traning loop", "keiohta/tf2rl/issues/126"),
        "np.random.choice permutes all 200,000 rows to draw 512",
        "idle while the CPU draws the batch: numpy.random.Generator.choice, or on the device",
        differs="other rows are drawn",
    ),
    Flaw(
        "small_updates_launched",
        thread(
            "[Performance] Accelerate DreamerV3 training with CUDA graphs", "pytorch/rl/pull/4216"
        ),
        "a world model runs over 32 moments with a dozen small operations in each",
        "launch-bound: a CUDA graph, or compile",
        anywhere=True,
    ),
    Flaw(
        "boolean_index_breaks",
        thread(
            "Inductor backend exception (not a graph break planned by dynamo) on "
            "aten.nonzero.default from boolean-mask assignment under torch.compile(dynamic=True)",
            "pytorch/pytorch/issues/194166",
        ),
        "compiled layers take out the points that are there by a boolean index, and put them back",
        "graph breaks, or the CPU waits for the GPU (nonzero): torch.where",
    ),
    Flaw(
        "batch_copied_in_line",
        thread(
            "[New Record] Overlap H2D transfers with GPU compute in PrefetchLoader",
            "KellerJordan/modded-nanogpt/pull/231",
        ),
        "a pinned batch of 113 MB is copied on the stream that then waits for it",
        "the copy to the device is not overlapped: copy the next batch on another stream",
    ),
)

FOURTH = {
    flaw.name: flaw for group in (PICTURES, SYNTHESIS, TUNING, SERVING, CONTROL) for flaw in group
}
