"""Flaws of issues, pull requests and forum threads about slow training and inference.

Collected by 69 queries of stored public pages, 60 of issue threads and 9 of forum and answer pages,
by symptom ("GPU utilization low", "each iteration takes long", "backward very slow", "gets slower
over time") and by field (detection, segmentation, classification, video, 3D, Gaussian splatting,
pose and flow, medical images, super-resolution, language, fine-tuning, generation, translation,
speech, synthesis of speech, audio, graphs, proteins, molecules, weather, physics, recommenders,
tables, time series, reinforcement learning, GANs, diffusion, metric learning). Some queries name a
part of a program (optimizer, loss, attention, norm, mixed precision, compilation, replay buffer),
two a cause (synchronisation, loops), since such threads are titled so. The order of the answers is
kept. All 168 threads whose cause is said in what the search showed were taken, in
fourteenth_threads.json; the same change proposed several times stands there several times.

Left out: threads without a cause (most of them), of other frameworks, of several GPUs only, of
training that ran on the CPU by mistake, of slower hardware or larger inputs as such, tutorials and
articles (they are no threads), and a second copy of the same pull request. Only excerpts were read,
so that what a thread says further down may be missing; two titles of answers are of the copy that
was found. Then 20 were implemented in an order drawn by chance (the seed is 20261130); two that
were drawn before the twentieth were skipped, for the reasons that are said there.

Where programs are simpler than their sources: data is random. The recogniser joins eight frames
by a linear layer and has no batch norm, so that batches of any size compute the same. The parts of
a batch of small batches accumulate gradients, as the source's configuration does. The detector's
decoding suppresses by the best overlap at once instead of box by box. The norms that are cast run
under autocast instead of a model converted to float16. The network that restores has two
resolutions and no attention. Distances are computed exactly, line by line, instead of by SciPy.
Sizes of lattices are those of random permutations, and neighbours are random.
"""

from __future__ import annotations

from .flaw import Flaw, thread

__all__ = ["FOURTEENTH"]

LISTED = (
    Flaw(
        "lan_training_loss_float",
        thread(
            "Stop synchronising the GPU on every training step", "lnccbrown/LANfactory/pull/120"
        ),
        "the loss of each batch is read as a Python number",
        "reading the loss each batch makes the CPU wait for the GPU; add it up on the device, "
        "detach it, read it rarely",
    ),
    Flaw(
        "canary_small_batches",
        thread("OOMptimizer: bucketing batch size profiles", "NVIDIA-NeMo/Speech/pull/9763"),
        "batches of 8 utterances, 8 of which are accumulated, leave the GPU mostly idle",
        "batches are too small for the GPU; larger batches with less accumulation, or else less "
        "launching (CUDA graphs, compilation)",
    ),
    Flaw(
        "pythia_odd_vocabulary",
        thread("Minor training speed improvements", "LAION-AI/Open-Assistant/pull/1979"),
        "vocabulary and length of sequences are no multiples of 16",
        "dimensions of matrix products are misaligned; pad the vocabulary (and the sequences) to a "
        "multiple of 8, 16 or 64",
        differs="the padded vocabulary has some more rows, which share in the softmax (0.1%)",
    ),
    Flaw(
        "yolov2_loader_in_main_process",
        thread("Why is training so slow", "yjh0410/yolov2-yolov3_PyTorch/issues/34"),
        "the loader prepares images in the main process",
        "the GPU waits for the data loader; give it workers (num_workers), prepare less on the CPU",
    ),
    Flaw(
        "detector_norms_cast_to_float32",
        thread("Why fp16 doesn't be faster", "open-mmlab/mmdetection/issues/1146"),
        "each norm casts its input to float32 and its output back",
        "batch norms run in float32 with casts around them; let them take the 16-bit input "
        "(statistics are of float32 anyway), no casts",
    ),
    Flaw(
        "ratings_tiny_batches",
        thread(
            "Missing super initialization in MF_MSE_PyTorch",
            "MaurizioFD/RecSys_Course_AT_PoliMi/issues/5",
        ),
        "factors of ratings are learned in batches of 128",
        "steps of tiny kernels are bound by their launches; larger batches, or CUDA graphs or "
        "compilation",
        differs="larger batches make fewer steps of the optimizer, between which the loss changes",
    ),
    Flaw(
        "seq2seq_loss_by_step",
        thread("Fast loss", "IBM/pytorch-seq2seq/pull/73"),
        "the loss is taken step by step of the sequence in a loop",
        "a loop over time steps slices and computes small losses, whose backward fills zeros for "
        "each slice; compute the loss of all steps at once",
    ),
    Flaw(
        "lattice_sizes_vary",
        thread("The training speed is very slow", "laoreja/HPLFlowNet/issues/6"),
        "each input has another number of points, for which cuDNN tunes its convolutions anew",
        "cuDNN benchmarks convolutions for each new size; pad to a few sizes, or turn "
        "cudnn.benchmark off",
        anywhere=True,
    ),
    Flaw(
        "skeleton_files_read_each_time",
        thread("GPU utilization is very low during training", "s-shamil/HandFormer/issues/9"),
        "each sample is read from a compressed file again whenever it is asked for",
        "the GPU waits for the data loader, which reads files; keep the data in memory or "
        "decompressed, more workers",
    ),
    Flaw(
        "decoder_without_key_value_cache",
        thread("Any tips for speeding up generation?", "lucidrains/x-transformers/issues/21"),
        "each new token runs the model on all tokens before it",
        "the prefix is computed again for each token; cache keys and values",
        differs="products of other shapes round otherwise, which may choose another token",
    ),
    Flaw(
        "ppo_minibatches_copied_again",
        thread(
            "[RLlib] Torch algos use now-framework-agnostic MultiGPUTrainOneStep execution op "
            "(~33% speedup for PPO-torch + GPU).",
            "ray-project/ray/pull/17371",
        ),
        "each pass over the batch copies its minibatches to the GPU again",
        "copies from the host in each minibatch (pageable, blocking); copy the whole batch once "
        "and slice it on the GPU, or else pin memory and overlap the copies",
    ),
    Flaw(
        "water_neighbours_every_step",
        thread(
            "Is the large performance drop expected when using TorchForce for a small water "
            "system?",
            "openmm/openmm/issues/5167",
        ),
        "the list of neighbours is built from all pairs in each step",
        "building all pairs takes most of the time though atoms hardly move; keep the list for "
        "some steps with a margin (skin), or build it by cells, less memory traffic, fuse it",
    ),
    Flaw(
        "galaxy_encoder_uncompiled",
        thread("torch.compile", "prob-ml/bliss/issues/905"),
        "the encoder runs eagerly",
        "many pointwise operations and norms are not fused; compile the encoder (torch.compile)",
        anywhere=True,
    ),
    Flaw(
        "adan_parameter_loop",
        thread("`torch._foreach...` implementation", "sail-sg/Adan/issues/1"),
        "the optimizer updates parameter by parameter",
        "many small kernels, a dozen for each parameter; use foreach operations, a fused or "
        "compiled optimizer",
    ),
    Flaw(
        "edge_list_neighbours",
        thread("My training is very slow", "lightaime/deep_gcns_torch/issues/20"),
        "messages of nearest neighbours run on a list of edges, with gathers and scatters",
        "each point has the same number of neighbours; use a dense layout [point, neighbour], "
        "broadcast the point and reduce over neighbours instead of scattering",
    ),
    Flaw(
        "conformer_unsorted_batches",
        thread("Add Semi Sorted Batching.", "NVIDIA-NeMo/Speech/pull/8584"),
        "utterances of very unlike lengths are padded to the longest of their batch",
        "much of the work is on padding; batch utterances of like length (sort, buckets), or pack "
        "them",
    ),
    Flaw(
        "boundary_distances_on_cpu",
        thread("training speed", "PengchengShi1220/cbDice/issues/3"),
        "distance transforms of the loss are computed on the CPU",
        "masks go to the CPU and distances back while the GPU waits; compute them on the GPU",
    ),
    Flaw(
        "mesh_attention_per_edge",
        thread("feat(models): Triton GraphTransformer", "ecmwf/anemoi-core/pull/631"),
        "attention along edges makes tensors of all edges in many kernels",
        "gathers, products, softmax and scatters write each edge's tensors to memory one after "
        "another; compile or fuse the attention (torch.compile, Triton)",
        anywhere=True,
    ),
    Flaw(
        "ssd_decoding_on_cpu",
        thread(
            "model.detect_objects take so much time",
            "sgrvinod/a-PyTorch-Tutorial-to-Object-Detection/issues/11",
        ),
        "boxes are decoded and suppressed on the CPU",
        "the network's output goes to the CPU and is worked on there while the GPU waits; keep "
        "priors and decoding on the GPU",
    ),
    Flaw(
        "restoring_one_by_one",
        thread("About inference time", "zsyOAOA/ResShift/issues/40"),
        "images are restored one at a time",
        "kernels of one image are small and bound by their launches; restore many images as one "
        "batch, or use CUDA graphs",
    ),
)

FOURTEENTH: dict[str, Flaw] = {flaw.name: flaw for flaw in LISTED}
