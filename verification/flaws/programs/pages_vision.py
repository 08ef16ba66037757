"""Networks for images and volumes that guides to speed take as their examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, compiled, copied, fused_adamw, seeded, training

__all__ = [
    "cifar_resnet_left_eager",
    "lightning_unet_in_32_bit",
    "mixer_gelu_in_five_kernels",
    "retina_detector_in_nchw",
    "sam_encoder_left_eager",
    "sam_masks_image_by_image",
    "volume_unet_without_cudnn_benchmark",
]


def own_gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))  # flaw: mixer_gelu_in_five_kernels


class MixerLayer(nn.Module):
    """An MLP across patches and one across channels."""

    def __init__(self, tokens: int, width: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.norm_1 = nn.LayerNorm(width)
        self.mix_1 = nn.Linear(tokens, width // 2)
        self.mix_2 = nn.Linear(width // 2, tokens)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.mix_1(self.norm_1(x).transpose(1, 2))
        # flaw in the next line: mixer_gelu_in_five_kernels
        x = x + self.mix_2(self.activation(y)).transpose(1, 2)
        # flaw in the next line: mixer_gelu_in_five_kernels
        return x + self.down(self.activation(self.up(self.norm_2(x))))


class Mixer(nn.Module):
    """MLP-Mixer, a classifier of images."""

    def __init__(
        self, width: int, layers: int, tokens: int, activation: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.layers = nn.Sequential(*(MixerLayer(tokens, width, activation) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.layers(x)).mean(1))


def mixer_gelu_in_five_kernels(flawed: bool, sizes: Sizes) -> Step:
    """An MLP-Mixer whose activation is a function of the program's own."""
    width, layers, batch, side = sizes.of((768, 12, 128, 224), (32, 1, 2, 32))
    activation = own_gelu if flawed else compiled(copied(own_gelu), sizes, dynamic=False)
    model, images, labels = seeded(
        lambda: (
            Mixer(width, layers, (side // 16) ** 2, activation),
            torch.randn(batch, 3, side, side),
            torch.randint(0, 1000, (batch,)),
        ),
        sizes,
    )
    return Step(training(lambda: F.cross_entropy(model(images), labels), fused_adamw(model), sizes))


class PreactivatedBlock(nn.Module):
    """Norm, ReLU and convolution, twice, and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm_1 = nn.BatchNorm2d(inputs)
        self.conv_1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm_2 = nn.BatchNorm2d(outputs)
        self.conv_2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut = (
            nn.Identity()
            if inputs == outputs
            else nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm_1(x))  # flaw: cifar_resnet_left_eager
        z = F.relu(self.norm_2(self.conv_1(y)))  # flaw: cifar_resnet_left_eager
        return self.conv_2(z) + self.shortcut(y)  # flaw: cifar_resnet_left_eager


class CifarResNet(nn.Module):
    """A wide residual network for small images."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.blocks = nn.Sequential(
            PreactivatedBlock(width, 2 * width, 1),
            PreactivatedBlock(2 * width, 2 * width, 1),
            PreactivatedBlock(2 * width, 4 * width, 2),
            PreactivatedBlock(4 * width, 4 * width, 1),
            PreactivatedBlock(4 * width, 8 * width, 2),
            PreactivatedBlock(8 * width, 8 * width, 1),
        )
        self.norm = nn.BatchNorm2d(8 * width)
        self.head = nn.Linear(8 * width, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(self.enter(images))  # flaw: cifar_resnet_left_eager
        # flaw in the next line: cifar_resnet_left_eager
        return self.head(F.relu(self.norm(x)).mean((2, 3)))


def cifar_resnet_left_eager(flawed: bool, sizes: Sizes) -> Step:
    """A residual network that learns small images, a large batch a step."""
    batch = sizes.of(512, 4)
    model, images, labels = seeded(
        lambda: (
            CifarResNet(sizes.of(64, 8)),
            torch.randn(batch, 3, 32, 32),
            torch.randint(0, 10, (batch,)),
        ),
        sizes,
    )
    model = model.to(memory_format=torch.channels_last)
    images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    network = model if flawed else compiled(model, sizes)  # flaw: cifar_resnet_left_eager
    # flaw in the next line: cifar_resnet_left_eager
    return Step(training(lambda: F.cross_entropy(network(images), labels), optimizer, sizes))


class NormedConv(nn.Module):
    """Convolution, batch norm and ReLU."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)))  # flaw: retina_detector_in_nchw


class DetectorBlock(nn.Module):
    """A bottleneck of a detector's backbone."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        self.reduce = NormedConv(inputs, inner, 1)
        self.spread = NormedConv(inner, inner, 3, stride)
        self.expand = nn.Conv2d(inner, 4 * inner, 1, bias=False)
        self.norm = nn.BatchNorm2d(4 * inner)
        self.shortcut = nn.Conv2d(inputs, 4 * inner, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.expand(self.spread(self.reduce(x))))  # flaw: retina_detector_in_nchw
        return F.relu(y + self.shortcut(x))  # flaw: retina_detector_in_nchw


class Detector(nn.Module):
    """Classes and boxes of anchors at three scales, by a pyramid and two towers that share."""

    def __init__(self, width: int, pyramid: int, classes: int, anchors: int) -> None:
        super().__init__()
        self.stem = NormedConv(3, width, 7, 2)
        stages, inputs = [], width
        for stage in range(4):
            inner = width << stage
            stages.append(
                nn.Sequential(
                    DetectorBlock(inputs, inner, 1 if stage == 0 else 2),
                    DetectorBlock(4 * inner, inner, 1),
                )
            )
            inputs = 4 * inner
        self.stages = nn.ModuleList(stages)
        self.lateral = nn.ModuleList(
            nn.Conv2d(4 * (width << stage), pyramid, 1) for stage in (1, 2, 3)
        )
        self.smooth = nn.ModuleList(nn.Conv2d(pyramid, pyramid, 3, 1, 1) for _ in range(3))
        towers = [[NormedConv(pyramid, pyramid, 3) for _ in range(4)] for _ in range(2)]
        self.classify = nn.Sequential(*towers[0], nn.Conv2d(pyramid, anchors * classes, 3, 1, 1))
        self.locate = nn.Sequential(*towers[1], nn.Conv2d(pyramid, anchors * 4, 3, 1, 1))

    def forward(self, images: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        x = F.max_pool2d(self.stem(images), 3, 2, 1)  # flaw: retina_detector_in_nchw
        levels = []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        merged: list[Tensor] = []
        for level, lateral in zip(levels[:0:-1], list(self.lateral)[::-1], strict=True):
            y = lateral(level)  # flaw: retina_detector_in_nchw
            merged.append(y if not merged else y + F.interpolate(merged[-1], scale_factor=2.0))
        # flaw in the next line: retina_detector_in_nchw
        pyramid = [smooth(y) for smooth, y in zip(self.smooth, merged, strict=True)]
        # flaw in the next line: retina_detector_in_nchw
        return [self.classify(y) for y in pyramid], [self.locate(y) for y in pyramid]


def detection_loss(
    outputs: tuple[list[Tensor], list[Tensor]], classes: list[Tensor], boxes: list[Tensor]
) -> Tensor:
    """Focal loss of the classes and absolute error of the boxes."""
    total = boxes[0].new_zeros(())
    for scores, found, wanted, places in zip(*outputs, classes, boxes, strict=True):
        scores = scores.float()
        error = F.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
        missed = torch.where(wanted > 0.5, 1 - scores.sigmoid(), scores.sigmoid())
        total = total + (missed.square() * error).mean() + F.l1_loss(found.float(), places)
    return total


def retina_detector_in_nchw(flawed: bool, sizes: Sizes) -> Step:
    """A one-stage detector that trains in mixed precision."""
    width, pyramid, classes, batch, side = sizes.of((64, 256, 80, 16, 512), (8, 8, 3, 4, 128))
    model, images = seeded(
        lambda: (Detector(width, pyramid, classes, 9), torch.randn(batch, 3, side, side)), sizes
    )
    if not flawed:
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    layout = torch.contiguous_format if flawed else torch.channels_last
    places = [side // stride for stride in (32, 16, 8)]

    def targets(channels: int) -> list[Tensor]:
        drawn = (torch.rand(batch, channels, place, place) for place in places)
        return [(each > 0.99).float().contiguous(memory_format=layout) for each in drawn]

    wanted, boxes = seeded(lambda: (targets(9 * classes), targets(36)), sizes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, fused=True)
    # flaw in the next line: retina_detector_in_nchw
    return Step(training(lambda: detection_loss(model(images), wanted, boxes), optimizer, sizes))


def double_conv(inputs: int, outputs: int, dimensions: int) -> nn.Sequential:
    """Two convolutions with batch norm and ReLU, in the plane or in space."""
    conv = nn.Conv2d if dimensions == 2 else nn.Conv3d
    norm = nn.BatchNorm2d if dimensions == 2 else nn.BatchNorm3d
    parts: list[nn.Module] = []
    for before in (inputs, outputs):
        parts += [conv(before, outputs, 3, padding=1, bias=False), norm(outputs), nn.ReLU(True)]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    """A U-Net that halves its resolution at each level and doubles its channels."""

    def __init__(self, inputs: int, width: int, levels: int, classes: int, dimensions: int) -> None:
        super().__init__()
        widths = [width << level for level in range(levels)]
        up = nn.ConvTranspose2d if dimensions == 2 else nn.ConvTranspose3d
        self.pool = F.max_pool2d if dimensions == 2 else F.max_pool3d
        self.down = nn.ModuleList(
            double_conv(before, after, dimensions)
            for before, after in zip([inputs, *widths[:-1]], widths, strict=True)
        )
        self.widen = nn.ModuleList(up(2 * each, each, 2, 2) for each in widths[:-1])
        self.up = nn.ModuleList(double_conv(2 * each, each, dimensions) for each in widths[:-1])
        head = nn.Conv2d if dimensions == 2 else nn.Conv3d
        self.head = head(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else self.pool(x, 2))
            kept.append(x)
        for level in reversed(range(len(self.up))):
            x = self.up[level](torch.cat([kept[level], self.widen[level](x)], 1))
        return self.head(x)


def lightning_unet_in_32_bit(flawed: bool, sizes: Sizes) -> Step:
    """Segmentation of photographs by a U-Net, as a trainer runs it unless told otherwise."""
    width, levels, batch, side = sizes.of((64, 4, 16, 256), (4, 2, 2, 16))
    model, images, masks = seeded(
        lambda: (
            UNet(3, width, levels, 1, 2),
            torch.randn(batch, 3, side, side),
            (torch.rand(batch, 1, side, side) > 0.5).float(),
        ),
        sizes,
    )
    model = model.to(memory_format=torch.channels_last)
    images = images.to(memory_format=torch.channels_last)

    def loss_of() -> Tensor:
        logits = model(images).float()
        chances = logits.sigmoid()
        overlap = 2 * (chances * masks).sum() / (chances.sum() + masks.sum())
        return F.binary_cross_entropy_with_logits(logits, masks) + 1 - overlap

    return Step(training(loss_of, fused_adamw(model), sizes, is_mixed=not flawed))


@contextmanager
def cudnn_benchmark(enabled: bool) -> Iterator[None]:
    """Whether cuDNN tries its algorithms."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = enabled
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def volume_unet_without_cudnn_benchmark(flawed: bool, sizes: Sizes) -> Step:
    """Segmentation of tumours in volumes of one size."""
    width, levels, batch, side = sizes.of((32, 4, 2, 96), (4, 2, 1, 8))
    model, volumes, labels = seeded(
        lambda: (
            UNet(4, width, levels, 4, 3),
            torch.randn(batch, 4, side, side, side),
            torch.randint(0, 4, (batch, side, side, side)),
        ),
        sizes,
    )
    return Step(
        training(lambda: F.cross_entropy(model(volumes), labels), fused_adamw(model), sizes),
        within=lambda: cudnn_benchmark(not flawed),
    )


class RelativeAttention(nn.Module):
    """Attention over a grid with a bias by the distance of rows and one by that of columns."""

    distances: Tensor

    def __init__(self, width: int, heads: int, side: int) -> None:
        super().__init__()
        self.heads = heads
        self.side = side
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.rows = nn.Parameter(0.02 * torch.randn(2 * side - 1, width // heads))
        self.columns = nn.Parameter(0.02 * torch.randn(2 * side - 1, width // heads))
        places = torch.arange(side)
        self.register_buffer("distances", places[:, None] - places[None, :] + side - 1)

    def forward(self, x: Tensor) -> Tensor:
        side = self.side
        # flaw in the next line: sam_encoder_left_eager
        q, k, v = self.qkv(x).flatten(1, 2).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        grid = q.unflatten(2, (side, side))
        # flaw in the next line: sam_encoder_left_eager
        by_row = torch.einsum("bnhwc,hkc->bnhwk", grid, self.rows[self.distances])
        # flaw in the next line: sam_encoder_left_eager
        by_column = torch.einsum("bnhwc,wkc->bnhwk", grid, self.columns[self.distances])
        # flaw in the next line: sam_encoder_left_eager
        bias = (by_row[..., :, None] + by_column[..., None, :]).flatten(4).flatten(2, 3)
        # flaw in the next line: sam_encoder_left_eager
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        # flaw in the next line: sam_encoder_left_eager
        return self.out(y.transpose(1, 2).flatten(2)).unflatten(1, (side, side))


class EncoderBlock(nn.Module):
    """Attention within windows, or over the whole grid, and an MLP."""

    def __init__(self, width: int, heads: int, side: int, window: int) -> None:
        super().__init__()
        self.window = window
        self.norm_1 = nn.LayerNorm(width)
        self.attention = RelativeAttention(width, heads, window or side)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_1(x)  # flaw: sam_encoder_left_eager
        y = self.windowed(y) if self.window else self.attention(y)
        x = x + y  # flaw: sam_encoder_left_eager
        # flaw in the next line: sam_encoder_left_eager
        return x + self.down(F.gelu(self.up(self.norm_2(x))))

    def windowed(self, x: Tensor) -> Tensor:
        batch, side, _, width = x.shape
        missing = -side % self.window
        count = (side + missing) // self.window
        x = F.pad(x, (0, 0, 0, missing, 0, missing))  # flaw: sam_encoder_left_eager
        x = x.unflatten(2, (count, self.window)).unflatten(1, (count, self.window))
        # flaw in the next line: sam_encoder_left_eager
        x = self.attention(x.transpose(2, 3).reshape(-1, self.window, self.window, width))
        x = x.view(batch, count, count, self.window, self.window, width).transpose(2, 3)
        # flaw in the next line: sam_encoder_left_eager
        return x.flatten(3, 4).flatten(1, 2)[:, :side, :side]


class ImageEncoder(nn.Module):
    """The image encoder of a model that segments anything."""

    def __init__(self, width: int, heads: int, layers: int, side: int, window: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.positions = nn.Parameter(0.02 * torch.randn(side, side, width))
        self.blocks = nn.ModuleList(
            EncoderBlock(width, heads, side, 0 if layer % 3 == 2 else window)
            for layer in range(layers)
        )
        self.neck = nn.Conv2d(width, 256, 1, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).permute(0, 2, 3, 1) + self.positions
        for block in self.blocks:
            x = block(x)  # flaw: sam_encoder_left_eager
        return self.neck(x.permute(0, 3, 1, 2))


def sam_encoder_left_eager(flawed: bool, sizes: Sizes) -> Step:
    """Photographs are encoded once each, before masks are asked for."""
    width, heads, layers, side, window, batch = sizes.of(
        (768, 12, 9, 64, 14, 4), (32, 2, 3, 4, 3, 1)
    )
    encoder, images = seeded(
        lambda: (
            ImageEncoder(width, heads, layers, side, window).eval(),
            torch.randn(batch, 3, 16 * side, 16 * side),
        ),
        sizes,
    )
    encoder, images = encoder.bfloat16(), images.bfloat16()
    if not flawed:
        blocks = [compiled(block, sizes, dynamic=False) for block in encoder.blocks]
        encoder.blocks = nn.ModuleList(blocks)

    @torch.inference_mode()
    def step() -> Tensor:
        return encoder(images).float().square().mean()  # flaw: sam_encoder_left_eager

    return Step(step)


class CrossAttention(nn.Module):
    """Attention of one sequence to another, at half the width."""

    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, inner) for _ in range(3))
        self.out = nn.Linear(inner, width)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = (self.q(q), self.k(k), self.v(v))
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in parts)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class TwoWayBlock(nn.Module):
    """Tokens attend to themselves and to the image, and the image to them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.own = CrossAttention(width, width, heads)
        self.to_image = CrossAttention(width, width // 2, heads)
        self.to_tokens = CrossAttention(width, width // 2, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 8 * width), nn.ReLU(), nn.Linear(8 * width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))

    def forward(
        self, tokens: Tensor, image: Tensor, asked: Tensor, places: Tensor
    ) -> tuple[Tensor, Tensor]:
        q = tokens + asked
        tokens = self.norms[0](tokens + self.own(q, q, tokens))
        q, k = tokens + asked, image + places
        tokens = self.norms[1](tokens + self.to_image(q, k, image))
        tokens = self.norms[2](tokens + self.mlp(tokens))
        q = tokens + asked
        return tokens, self.norms[3](image + self.to_tokens(k, q, tokens))


class MaskDecoder(nn.Module):
    """Masks of prompted objects from the embeddings of their images."""

    def __init__(self, width: int, side: int) -> None:
        super().__init__()
        self.side = side
        self.asking = nn.Parameter(torch.randn(5, width))
        self.places = nn.Parameter(torch.randn(side * side, width))
        self.frequencies = nn.Parameter(torch.randn(2, width // 2))
        self.blocks = nn.ModuleList(TwoWayBlock(width, 8) for _ in range(2))
        self.widen_1 = nn.ConvTranspose2d(width, width // 4, 2, 2)
        self.widen_2 = nn.ConvTranspose2d(width // 4, width // 8, 2, 2)
        self.weights = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width // 8)
        )

    def forward(self, images: Tensor, points: Tensor) -> Tensor:
        """Masks of each prompt; images has one embedding for each prompt."""
        angles = 2 * math.pi * (points @ self.frequencies)
        prompts = torch.cat([angles.sin(), angles.cos()], -1)
        asked = torch.cat([self.asking.expand(len(points), -1, -1), prompts], 1)
        tokens, image = asked, images.flatten(2).transpose(1, 2)
        for block in self.blocks:
            tokens, image = block(tokens, image, asked, self.places)
        grid = image.transpose(1, 2).unflatten(2, (self.side, self.side))
        grid = F.gelu(self.widen_2(F.gelu(self.widen_1(grid))))
        return (self.weights(tokens[:, 1:5]) @ grid.flatten(2)).unflatten(-1, grid.shape[2:])


def sam_masks_image_by_image(flawed: bool, sizes: Sizes) -> Step:
    """Masks for the objects of a batch of images, of which each has another number of objects."""
    width, side = sizes.of((256, 64), (16, 4))
    counts = [2 + 5 * image % 7 for image in range(sizes.of(32, 3))]
    decoder, images, points = seeded(
        lambda: (
            MaskDecoder(width, side).eval(),
            torch.randn(len(counts), width, side, side),
            [torch.rand(count, 2, 2) for count in counts],
        ),
        sizes,
    )
    decoder, images = decoder.bfloat16(), images.bfloat16()
    points = [each.bfloat16() for each in points]
    owners = torch.repeat_interleave(torch.tensor(counts)).to(sizes.device)

    def decoded() -> Tensor:
        if not flawed:
            return decoder(images[owners], torch.cat(points))
        masks = []
        for image, own in zip(images, points, strict=True):  # flaw: sam_masks_image_by_image
            # flaw in the next line: sam_masks_image_by_image
            masks.append(decoder(image.expand(len(own), -1, -1, -1), own))
        return torch.cat(masks)

    @torch.inference_mode()
    def step() -> Tensor:
        return decoded().float().square().mean()

    return Step(step)
