"""Flaws of public threads: issues, pull requests and questions about training that is slow.

How they were collected: 50 queries of a search in stored GitHub threads and in stored pages,
worded by symptom ("training slow", "GPU utilization low", "perf: avoid sync", "this loop is
slow", "speed up") and by field (detection, segmentation, speech, vocoders, graphs, recommenders,
reinforcement learning, diffusion, points, splats, series, molecules, language, generation,
operators, proteins); some name a suspected part (a loop, a cache, a copy, a convolution). Each
result whose cause the asker, a maintainer or the patch says became a candidate, in the order met:
110, in `thirteenth_threads.json`. Left out: other frameworks, threads without a cause, several
GPUs, time of compilation or installation, and pages that are not threads. Only what the search
returned of a thread was read, so for a few the words are what its title and opening imply. Pages
of forums were few among the results, so most candidates are GitHub threads. They were drawn with
random.Random(20261130); the first twenty drawn are the flaws, none was skipped.

Where a program is simpler than its source: data are random; assignments of detectors are the
cheapest query that is left for each target in turn, for there is no Hungarian solver in plain
PyTorch; the splats' lists for tiles are given, and they are composed in plain PyTorch; the
transducer's remedy is a cumulative sum for each frame, not a kernel of the source's library;
furthest points get a small Triton kernel; the short convolution's remedy is a compiled sum of
shifted products; which tensors a pull request moved to the device is guessed for
`informer_masks_from_host` and `slapo_gpt_neo_mask_on_host`; models are of fewer layers than the
largest ones named.
"""

from __future__ import annotations

from .flaw import Flaw, thread

__all__ = ["THREADS"]

_FLAWS = [
    Flaw(
        "hifigan_without_autocast",
        thread("Training HIFI-GAN faster", "maum-ai/assem-vc/issues/25"),
        "A vocoder and its discriminators are trained in float32.",
        "The model runs in float32; use autocast to bfloat16 or float16, half precision.",
        anywhere=True,
        differs="bfloat16 rounds",
    ),
    Flaw(
        "scvi_latents_no_grad",
        thread(
            "Faster inference in PyTorch with `torch.inference_mode`.",
            "scverse/scvi-tools/pull/1695",
        ),
        "Latents of many small batches are computed under no_grad.",
        "Inference keeps overheads of autograd; use torch.inference_mode instead of no_grad.",
        anywhere=True,
    ),
    Flaw(
        "linear_attention_short_conv",
        thread("Short conv is miserable slow in pytorch", "pytorch/pytorch/issues/192902"),
        "A depthwise convolution of four taps over many channels of a long sequence is slow.",
        "The depthwise Conv1d reaches little of the bandwidth; write it as a compiled sum of "
        "shifted products, or use a kernel of its own (Triton, causal_conv1d).",
    ),
    Flaw(
        "splats_loss_read_twice",
        thread(
            "Defer logging to avoid extra synchronization",
            "openvdb/fvdb-reality-capture/pull/144",
        ),
        "The loss is read before the backward for the progress bar and after the step for the log.",
        "loss.item() waits for the GPU; read it once at the end of the step, less often, or later.",
    ),
    Flaw(
        "transducer_cell_by_cell",
        thread(
            "What are the advantages of using numba instead of native pytorch while computing "
            "RNNT-Loss?",
            "NVIDIA-NeMo/Speech/issues/3260",
        ),
        "The transducer loss adds up alignments in a loop over frames and tokens.",
        "A Python loop launches small kernels for each frame and token; vectorise it over rows or "
        "diagonals, or use one kernel.",
    ),
    Flaw(
        "ernie_trigonometry_twice",
        thread("diffusion: reuse ERNIE RoPE trig values", "sgl-project/sglang/pull/23096"),
        "Cosines and sines of the rotary embedding are computed for queries and again for keys.",
        "The same result is computed twice in each layer; compute it once and reuse it, or before "
        "the layers.",
    ),
    Flaw(
        "efficientdet_assigns_by_image",
        thread(
            "Working on some performance (GPU utilization/memory, img/sec) gains",
            "rwightman/efficientdet-pytorch/pull/37",
        ),
        "Anchors are assigned to boxes in a loop over images and levels.",
        "A Python loop over the images of the batch launches small kernels; do all images at once "
        "with a batch dimension.",
    ),
    Flaw(
        "specaugment_mask_value_item",
        thread("[Pyspeech] avoid .item call in feature_processing", "pytorch/audio/pull/4015"),
        "The value that masks features is read by item() for each mask.",
        "item() waits for the GPU; keep the value as a tensor.",
    ),
    Flaw(
        "informer_masks_from_host",
        thread("Reduce device transfers", "Nixtla/neuralforecast/pull/923"),
        "Masks, sampled indices and quantiles of a forecaster are made on the CPU and moved.",
        "Tensors are made on the CPU and copied to the GPU in each layer, which waits; make them "
        "on the device, or keep them as buffers.",
        differs="the generators of CPU and GPU draw other keys",
    ),
    Flaw(
        "lcm_merges_by_pair",
        thread(
            "Accelerated `LCMAggregation` by increasing parallelism",
            "pyg-team/pytorch_geometric/pull/8023",
        ),
        "A readout calls its GRU cell for each pair of nodes by itself.",
        "A Python loop over pairs launches small kernels; merge all pairs of a level in one call.",
    ),
    Flaw(
        "phi_tuning_empties_cache",
        thread(
            "cuda.empty_cache in trainer.py slow down training",
            "huggingface/transformers/issues/31372",
        ),
        "The allocator's cache is emptied in every step, before the backward.",
        "empty_cache gives memory back that must be allocated again (cudaFree, cudaMalloc, waits); "
        "remove the call, or call it seldom.",
    ),
    Flaw(
        "rfdetr_foreign_costs_copied",
        thread(
            "perf(matcher): copy only the diagonal cost blocks to CPU before assignment",
            "roboflow/rf-detr/pull/1281",
        ),
        "The costs of all queries with the targets of all images are copied to the CPU.",
        "A large pageable copy to the CPU of which most is thrown away; take the blocks of the own "
        "targets on the device and copy these.",
    ),
    Flaw(
        "minimax_old_flash_kernel",
        thread(
            "Silently slower attention kernel when training MiniMax-H3 LoRA on B200",
            "modelscope/DiffSynth-Studio/issues/1687",
        ),
        "Attention over a long sequence runs on the FlashAttention-2 kernel of an older GPU.",
        "The attention backend is not the fastest of this GPU; let SDPA use cuDNN (or a kernel "
        "made for the GPU).",
    ),
    Flaw(
        "slapo_gpt_neo_mask_on_host",
        thread("[Bugfix] Fix tensor device", "awslabs/slapo/pull/50"),
        "The mask of attention is made on the CPU and moved to the GPU in each layer.",
        "A constant tensor is made on the CPU and copied in each layer, which waits; make it on "
        "the device, or once.",
    ),
    Flaw(
        "cpm_generates_without_cache",
        thread("model generate decoder too slow", "TsinghuaAI/CPM-1-Generate/issues/4"),
        "Each new token recomputes the whole prefix.",
        "Keys and values of the past are not kept; use a key-value cache (past_key_values).",
    ),
    Flaw(
        "transfer_resnet_without_benchmark",
        thread(
            "set cudnn.benchmark to True for speed up training process",
            "pytorch/tutorials/pull/1811",
        ),
        "A convolutional network of constant shapes is trained without cudnn.benchmark.",
        "Let cuDNN try its algorithms: torch.backends.cudnn.benchmark = True.",
        anywhere=True,
        differs="other algorithms round otherwise",
    ),
    Flaw(
        "yolov4_loader_without_workers",
        thread(
            "train: the GPU is used too little (title in Chinese)",
            "argusswift/YOLOv4-pytorch/issues/58",
        ),
        "Images are made ready in the training process, for the loader has no workers.",
        "The GPU waits for the data loader; use num_workers above 0, or prepare data on the GPU.",
    ),
    Flaw(
        "lane_graph_costs_to_host",
        thread(".cpu() operation as bottleneck in training", "ybarancan/STSU/issues/11"),
        "The costs of each decoder layer's matching go to the CPU, which waits for the forward.",
        ".cpu() waits for the GPU; match on the GPU, or copy the costs of all layers at once.",
    ),
    Flaw(
        "pointnet_furthest_point_loop",
        thread("Is farthest_point_sampling optimized?", "facebookresearch/pytorch3d/issues/1058"),
        "Furthest points are sampled in a Python loop of small operations.",
        "A Python loop launches small kernels for each point; use one kernel (pytorch3d, Triton), "
        "or a CUDA graph.",
    ),
    Flaw(
        "onetrainer_latent_statistics_on_host",
        thread("Avoid per-step CUDA syncs in the training loop", "Nerogar/OneTrainer/pull/1608"),
        "Statistics that scale latents lie on the CPU, and the loss is read in every step.",
        "A blocking copy of unchanged statistics and item() wait for the GPU in each step; keep "
        "the statistics on the GPU, and read the loss later.",
    ),
]

THREADS: dict[str, Flaw] = {flaw.name: flaw for flaw in _FLAWS}
