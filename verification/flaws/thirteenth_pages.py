"""Flaws that guides, documentation pages, posts and logs of speed runs name.

How they were collected: 213 recommendations of 28 pages, in the order in which the pages were met
(`thirteenth_pages.json`), each a candidate of its own, also where several pages say the same. The
search stores pages, partly in old versions. Read in full were the tuning guide of PyTorch, its
notes on CUDA semantics and on common graph breaks, the pages of Transformers and Diffusers,
the page on speed of Lightning, the post on Segment Anything, and most of the READMEs of
modded-nanogpt and nanoGPT; the second halves were read of the AMP recipe and of the tutorial on
pinned memory. Of all other pages there were excerpts only or an outdated text (torch.optim,
torch.utils.data), so that many of their candidates were written down from memory of these pages.
What needs several GPUs and what concerns the CPU only was no candidate.

One draw (`random.Random(20261129)`) ordered the candidates; the first 23 gave 20 flaws. Three were
skipped: the recompilations for prompts of many lengths (time of compiling, not of steps), the
network of hlb-CIFAR10 in NCHW (the same cause of a like model stood two places before), and the
frozen whitening layer of Airbench. That page, looked up after the draw, does not say that this
costs time; such a reason to skip was not among those agreed on before. Some sources of flaws are
not confirmed word by word: what the 2021 guide says of transfers, that the first post of Chaim Rand
ends with a compiled model, and that torch.optim calls multi_avg_fn more efficient, are from memory.
The post that names the policy's flaw speaks of idle time between kernels in its introduction.

Where a program is simpler than its source: data is drawn at random; weights are not trained.
Networks are smaller: a U-Net of two levels stands for SDXL, nine layers for the image encoder of
Segment Anything, whose blocks are compiled one by one and not with max-autotune. The blocks of the
speed run's GPT are compiled one by one, too; it has AdamW instead of Muon. A page that names no
model has one that is trained that way: a mixer, a detector, a radiance field, a mask estimator.
Of what was compiled, only tiny sizes ran before (on a CPU); no step was timed before the judging.
"""

from __future__ import annotations

from .flaw import GITHUB, TORCH_DOCS, Flaw, Source, thread

__all__ = ["PAGES"]

TUNING_GUIDE = Source(
    "Performance Tuning Guide",
    "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
)
SEGMENT_ANYTHING = Source(
    "Accelerating Generative AI with PyTorch: Segment Anything, Fast",
    "https://pytorch.org/blog/accelerating-generative-ai/",
)
TIPS = Source(
    "Optimize PyTorch Performance for Speed and Memory Efficiency",
    "https://www.thetechplatform.com/post/"
    "optimize-pytorch-performance-for-speed-and-memory-efficiency",
)

DRAWN = [
    Flaw(
        "mixer_gelu_in_five_kernels",
        TUNING_GUIDE,
        "an activation of the program's own runs as one kernel for each of its operations",
        "the operations of the activation pass over memory one by one: fuse them by torch.compile, "
        "or call F.gelu",
    ),
    Flaw(
        "latent_unet_in_full_precision",
        Source(
            "Accelerating Generative AI Part III: Diffusion, Fast",
            "https://pytorch.org/blog/accelerating-generative-ai-3/",
        ),
        "a diffusion pipeline runs with float32 weights",
        "the model computes in float32: load or cast it to bfloat16 (or float16), or use autocast, "
        "or at least allow TF32",
        anywhere=True,
        differs="one computes in bfloat16",
    ),
    Flaw(
        "contrast_queue_on_cpu",
        Source(
            "Faster Deep Learning Training with PyTorch - a 2021 Guide",
            "https://efficientdl.com/faster-deep-learning-in-pytorch-a-guide/",
        ),
        "a queue of keys stays on the CPU and is copied to the GPU and back at each step",
        "each step copies the queue between CPU and GPU and waits: keep it on the GPU, or at least "
        "copy it from pinned memory without blocking",
    ),
    Flaw(
        "translator_positions_made_on_cpu",
        Source("CUDA semantics", f"{TORCH_DOCS}/notes/cuda.html"),
        "each forward computes its table of positions on the CPU and copies it to the GPU",
        "tensors are made on the CPU in the forward and copied: make them on the device, or once "
        "and for all as a buffer",
    ),
    Flaw(
        "radiance_field_without_tf32",
        TUNING_GUIDE,
        "products of float32 matrices do not use the tensor cores",
        "float32 products without tensor cores: set_float32_matmul_precision('high'), allow_tf32, "
        "or autocast to bfloat16",
        anywhere=True,
    ),
    Flaw(
        "sam_masks_image_by_image",
        SEGMENT_ANYTHING,
        "masks are decoded image by image, because images have different numbers of prompts",
        "a Python loop calls the decoder for each image with few prompts: batch the prompts of all "
        "images (concatenated, padded or nested), launches limit it",
    ),
    Flaw(
        "recipe_mlp_in_default_precision",
        Source(
            "Automatic Mixed Precision",
            "https://docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html",
        ),
        "a network of linear layers trains in default precision",
        "the model trains in float32: autocast to bfloat16 or float16, or allow TF32",
        anywhere=True,
    ),
    Flaw(
        "cifar_resnet_left_eager",
        Source(
            "PyTorch Model Performance Analysis and Optimization",
            "https://towardsdatascience.com/"
            "pytorch-model-performance-analysis-and-optimization-10c3c5822869/",
        ),
        "the residual network trains without being compiled",
        "pointwise operations and norms run one by one: torch.compile the model, which fuses them",
    ),
    Flaw(
        "small_policy_limited_by_launches",
        Source(
            "Why Your PyTorch Model Is Slower Than You Think (Even on GPU)",
            "https://www.luseratech.com/ml/why-your-pytorch-model-is-slower-than-you-think-even-on-gpu",
        ),
        "the GPU idles between the small kernels of an eager step",
        "launches limit the step: CUDA graphs or torch.compile (mode reduce-overhead), or a larger "
        "batch",
        anywhere=True,
    ),
    Flaw(
        "averaged_diffusion_weights_one_by_one",
        Source("torch.optim", f"{TORCH_DOCS}/optim.html"),
        "the moving average of the weights is updated parameter by parameter",
        "a loop over parameters launches small kernels and copies: update all at once "
        "(multi_avg_fn, torch._foreach)",
    ),
    Flaw(
        "vae_decoder_left_eager",
        thread(
            "Accelerate inference",
            "huggingface/diffusers/blob/main/docs/source/en/optimization/fp16.md",
        ),
        "the decoder of a pipeline runs without being compiled",
        "norms, activations and additions run one by one: torch.compile the decoder, which fuses "
        "them",
    ),
    Flaw(
        "sentence_encoder_tiny_batches",
        TIPS,
        "the batch is far smaller than memory allows",
        "small batches leave the GPU idle, launches limit them: larger batches",
        anywhere=True,
        differs="smaller batches take more steps of the optimizer",
    ),
    Flaw(
        "retina_detector_in_nchw",
        TUNING_GUIDE,
        "a convolutional detector in mixed precision keeps the contiguous memory format",
        "convolutions in NCHW, transposed before and after: channels_last for model and images",
        anywhere=True,
    ),
    Flaw(
        "diffusion_noise_from_cpu",
        TUNING_GUIDE,
        "noise and times are drawn on the CPU and copied to the GPU",
        "random tensors made on the CPU and copied at each step: draw them on the device "
        "(device=, randn_like)",
        differs="the CPU and the GPU draw other numbers",
    ),
    Flaw(
        "llama_decoding_without_cache",
        thread(
            "Optimizing inference",
            "huggingface/transformers/blob/main/docs/source/en/llm_optims.md",
        ),
        "each new token computes keys and values of all earlier tokens again",
        "the prefix is computed again at each token: keep keys and values in a cache",
        differs="greedy choices between near logits differ by rounding",
    ),
    Flaw(
        "volume_unet_without_cudnn_benchmark",
        TUNING_GUIDE,
        "cuDNN does not try its algorithms, though all volumes have one size",
        "the algorithms of convolutions are not tried: torch.backends.cudnn.benchmark = True",
        anywhere=True,
    ),
    Flaw(
        "lightning_unet_in_32_bit",
        Source(
            "Speed Up Model Training",
            "https://lightning.ai/docs/pytorch/stable/advanced/speed.html",
        ),
        "a U-Net trains in 32 bits",
        "the model trains in float32: mixed precision (autocast to bfloat16 or float16)",
        anywhere=True,
    ),
    Flaw(
        "sam_encoder_left_eager",
        SEGMENT_ANYTHING,
        "the image encoder runs without being compiled",
        "many pointwise kernels around attention: torch.compile the encoder, which fuses them",
    ),
    Flaw(
        "speedrun_gpt_float32_stream",
        Source("Modded-NanoGPT", f"{GITHUB}/KellerJordan/modded-nanogpt"),
        "activations between the blocks are float32 under autocast",
        "the residual stream is float32, because the embedding and the norms are: cast it to "
        "bfloat16 behind the embedding",
    ),
    Flaw(
        "spectrum_mask_of_1025_bins",
        TUNING_GUIDE,
        "the layers that meet the spectrum have 1025 features",
        "the sizes of matrix products are no multiples of 8: pad them (1032) or drop a bin (1024)",
    ),
]
PAGES: dict[str, Flaw] = {flaw.name: flaw for flaw in DRAWN}
