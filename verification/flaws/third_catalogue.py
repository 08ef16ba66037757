"""The third collection of flaws, which no rule was written for.

It was made by somebody who had read the programs of the first two and not the rules, but who saw
the names of some rules that `accepted.json` lists and the summary of the results. Its causes are
the ones that guides and threads name again and again; its models and the form of its code are
others.
"""

from __future__ import annotations

from .flaw import TORCH_DOCS, Flaw, Source, thread

__all__ = ["THIRD"]

DATA = (
    Flaw(
        "workers_restarted",
        Source("torch.utils.data, persistent_workers", f"{TORCH_DOCS}/data.html"),
        "a DataLoader starts its workers again for each short epoch",
        "idle while the workers of the data loader start: persistent_workers=True",
    ),
    Flaw(
        "rows_one_by_one",
        thread("Dataloader extremely slow on in-memory datasets", "pytorch/pytorch/issues/106704"),
        "a DataLoader takes the 2048 rows of a table one by one from a TensorDataset and stacks "
        "them",
        "idle while waiting for the data loader: index whole batches, or more workers",
    ),
    Flaw(
        "images_copied_as_floats",
        thread(
            "Optimize inference by deferring normalization to GPU", "talmolab/sleap-nn/pull/406"
        ),
        "images are made floats on the CPU, so that four times the bytes are copied",
        "the copy to the device is large: copy bytes (uint8), convert on the device",
    ),
    Flaw(
        "negatives_in_python",
        thread(
            "perf: Optimize negative sampling with vectorized implementation",
            "YuanchenBei/ColdRec/pull/9",
        ),
        "items that a user has not seen are drawn one by one in Python in each step",
        "idle while the CPU makes the batch in a loop of Python: draw them on the device, or at "
        "once",
        differs="other items are drawn",
    ),
    Flaw(
        "spectra_on_cpu",
        thread(
            "[Whisper] Computing features on CPU slows down WhisperFeatureExtractor",
            "huggingface/transformers/issues/29901",
        ),
        "log-mel spectra are computed on the CPU clip by clip, in the training loop",
        "idle while the CPU prepares the batch: compute spectra on the device, all at once",
    ),
)

DIFFUSION = (
    Flaw(
        "schedule_on_cpu",
        thread(
            "Remove per-step host syncs from denoising loops", "huggingface/diffusers/pull/14589"
        ),
        "a sampler looks up its schedule on the CPU by timesteps of the GPU, three times a step",
        "the CPU waits for the GPU (t.cpu()), and copies back: the schedule on the device",
    ),
    Flaw(
        "guidance_in_two_passes",
        thread(
            "Motion Diffusion Model, cfg_sampler.py",
            "GuyTevet/motion-diffusion-model/blob/main/model/cfg_sampler.py",
        ),
        "classifier-free guidance runs the model twice, with and without the text",
        "launch-bound, or products too small: both in one batch",
        anywhere=True,
    ),
    Flaw(
        "attention_slicing",
        thread("Update attention slicing docs", "huggingface/diffusers/issues/4487"),
        "attention runs in a loop over heads, to save memory that is free",
        "attention that is not fused, or a loop of small launches: scaled_dot_product_attention",
    ),
    Flaw(
        "weights_offloaded",
        Source(
            "Diffusers, Reduce memory usage",
            "https://huggingface.co/docs/diffusers/optimization/memory",
        ),
        "the weights of each block come from the CPU for each call, though memory is free",
        "copies of weights to the device: keep the weights there",
    ),
    Flaw(
        "channels_first_upscaling",
        Source(
            "Diffusers, Accelerate inference",
            "https://huggingface.co/docs/diffusers/optimization/fp16",
        ),
        "a convolutional upscaler runs in bfloat16 in NCHW",
        "layout conversions around convolutions: channels_last",
    ),
)

SIGNALS = (
    Flaw(
        "fp32_inference",
        thread(
            'Load Whisper with torch_dtype="auto" for fp16 inference',
            "NVIDIA-NeMo/Speech/pull/15680",
        ),
        "a speech encoder is loaded in float32, the default, for inference",
        "float32 products or traffic in inference: bfloat16 or float16",
        anywhere=True,
    ),
    Flaw(
        "double_series",
        thread(
            "Make it easier to specify float32 data for PyTorch models",
            "unit8co/darts/issues/572",
        ),
        "a forecaster trains in float64, the dtype of its data",
        "float64 arithmetic: float32",
        anywhere=True,
    ),
    Flaw(
        "loss_per_sample",
        thread(
            "Vectorized the util calculations", "HarryVolek/PyTorch_Speaker_Verification/pull/33"
        ),
        "a loss compares each utterance with each speaker in loops of Python",
        "many small launches from a loop: one product for all",
    ),
    Flaw(
        "linear_per_channel",
        thread("LTSF-Linear, NLinear.py", "cure-lab/LTSF-Linear/blob/main/models/NLinear.py"),
        "each of 137 series has a linear layer, in a loop, whose result is written to a slice",
        "many small launches from a loop: one batched product",
    ),
)

GRAPHS = (
    Flaw(
        "dense_adjacency",
        thread("Why need sparse block diagonal adjacency matrices at all", "tkipf/gcn/issues/105"),
        "graph convolutions multiply by a dense adjacency matrix, nearly all of it zeros",
        "products with a matrix of zeros: a sparse matrix, or messages over the edges",
    ),
    Flaw(
        "norm_per_layer",
        Source(
            "PyG, GCNConv",
            "https://pytorch-geometric.readthedocs.io/en/stable/generated/torch_geometric.nn.conv.GCNConv.html",
        ),
        "each layer computes the degrees and the weights of all edges in each step",
        "repeated work with the same result, many launches: compute the weights once (cached)",
    ),
)

TRAINING = (
    Flaw(
        "timers_synchronize",
        thread(
            "DeepSpeed, throughput timers",
            "deepspeedai/DeepSpeed/blob/master/deepspeed/utils/config.py",
        ),
        "timers wait for the GPU before and after each half of each layer",
        "the CPU waits for the GPU (synchronize): turn the timers off, or events",
    ),
    Flaw(
        "gradient_histograms",
        thread(
            "[CLI] Wandb Taking significantly long time to execute code", "wandb/wandb/issues/2268"
        ),
        "a histogram of each gradient is logged in each step",
        "the CPU waits for the GPU in a loop over parameters: log rarely",
    ),
    Flaw(
        "group_per_parameter",
        thread(
            "perf(training): group optimizer parameters by their hyperparameters",
            "roboflow/rf-detr/pull/1409",
        ),
        "each parameter has a group of its own: a fused optimizer launches once for each",
        "the optimizer runs group by group: merge the groups of the same settings",
    ),
    Flaw(
        "frozen_backbone_gradients",
        Source(
            "Transfer Learning for Computer Vision",
            "https://docs.pytorch.org/tutorials/beginner/transfer_learning_tutorial.html",
        ),
        "only the head is trained, and backward goes through the whole backbone",
        "gradients that nobody reads: requires_grad_(False) or no_grad for the backbone",
    ),
    Flaw(
        "forward_again_for_metrics",
        thread("avoid double forward pass for train metrics", "mosaicml/composer/issues/467"),
        "each step runs the model once more, for its training accuracy",
        "a forward that is repeated for metrics: use the outputs of the training step, or rarely",
    ),
    Flaw(
        "critics_one_by_one",
        Source(
            "Model ensembling", "https://docs.pytorch.org/tutorials/intermediate/ensembling.html"
        ),
        "ten small critics of an ensemble run in a loop",
        "many small launches from a loop, launch-bound: batched products (vmap), a CUDA graph",
    ),
    Flaw(
        "densenet_checkpoints",
        thread("Memory efficient densenet", "pytorch/vision/pull/797"),
        "each bottleneck of a DenseNet is checkpointed (memory_efficient) though memory is free",
        "recomputation of activations: memory_efficient=False",
    ),
    Flaw(
        "benchmark_with_changing_sizes",
        thread("Fix regression on Detection training script", "pytorch/vision/pull/5985"),
        "cudnn.benchmark is on, and images have another size in each step",
        "cuDNN tries its algorithms for each size: benchmark off, or few sizes",
        anywhere=True,
    ),
)

COMPILATION = (
    Flaw(
        "only_forward_compiled",
        thread(
            "Clarify that `compile(module)` only affects the `forward` method.",
            "pytorch/pytorch/issues/141616",
        ),
        "a VAE is compiled, and its method decode is called, which runs eagerly",
        "eager code that was to be compiled: compile the method that is called",
    ),
    Flaw(
        "compiled_small_batch",
        Source("torch.compile, mode", f"{TORCH_DOCS}/generated/torch.compile.html"),
        "a compiled encoder of one sentence at a time runs in the default mode",
        "launch-bound: CUDA graphs, mode reduce-overhead",
        anywhere=True,
    ),
    Flaw(
        "inf_clamp_branch",
        Source(
            "Common Graph Breaks",
            f"{TORCH_DOCS}/compile/programming_model.common_graph_breaks.html",
        ),
        "compiled blocks branch on `x.isinf().any()`, as T5 does in float16",
        "graph breaks, or the CPU waits for the GPU: torch.where",
    ),
    Flaw(
        "focal_loss_eager",
        thread("add cpp sigmoid focal loss", "open-mmlab/mmdetection/pull/490"),
        "the focal loss of all anchors and classes is written out in eager operations",
        "elementwise operations that are not fused: compile the loss",
    ),
)

GENERATION = (
    Flaw(
        "eos_check_per_token",
        thread(
            "[generate] stop synchronizing the accelerator on every decode step",
            "huggingface/transformers/pull/47975",
        ),
        "after each token a decoder asks whether all texts have ended",
        "the CPU waits for the GPU: ask every few tokens, or later",
    ),
    Flaw(
        "logits_of_whole_prompt",
        thread(
            "Reducing memory usage: removing useless logits computation in generate()",
            "huggingface/transformers/pull/31292",
        ),
        "prefill computes the logits of all tokens of the prompt, and the last is used",
        "logits that nobody reads: the head on the last token only",
    ),
)

THIRD = {
    flaw.name: flaw
    for group in (DATA, DIFFUSION, SIGNALS, GRAPHS, TRAINING, COMPILATION, GENERATION)
    for flaw in group
}
