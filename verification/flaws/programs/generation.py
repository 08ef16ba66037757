"""Flaws of GANs, of diffusion models and of vocoders."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from .program import Sizes, Step, autocast, fused_adamw, seeded
from .vision import UNet

__all__ = ["discriminator_gradients", "sigmas_by_timestep", "weight_norm_in_inference"]


def generator_of(latent: int, width: int, levels: int) -> nn.Sequential:
    """DCGAN's generator, from a latent to an image of 4 x 2^levels pixels."""
    channels = width << (levels - 1)
    layers = [nn.ConvTranspose2d(latent, channels, 4, bias=False)]
    for _ in range(levels - 1):
        layers += [nn.BatchNorm2d(channels), nn.ReLU(True)]
        layers.append(nn.ConvTranspose2d(channels, channels // 2, 4, 2, 1, bias=False))
        channels //= 2
    layers += [nn.BatchNorm2d(channels), nn.ReLU(True)]
    layers += [nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers)


class Discriminator(nn.Module):
    """A discriminator of patches, as pix2pix has it."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 4, 2, 1)
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for level in range(1, levels):
            self.convs.append(nn.Conv2d(width << level - 1, width << level, 4, 2, 1, bias=False))
            self.norms.append(nn.BatchNorm2d(width << level))
        self.last = nn.Conv2d(width << levels - 1, 1, 4, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.first(x), 0.2)  # flaw: discriminator_gradients
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = conv(x)  # flaw: discriminator_gradients
            x = F.leaky_relu(norm(x), 0.2, inplace=True)  # flaw: discriminator_gradients
        return self.last(x)  # flaw: discriminator_gradients


def set_requires_grad(net: nn.Module, requires_grad: bool) -> None:
    for parameter in net.parameters():
        parameter.requires_grad = requires_grad


def gan_loss(prediction: Tensor, is_real: bool) -> Tensor:
    target = torch.full_like(prediction, float(is_real))
    return F.binary_cross_entropy_with_logits(prediction, target)


def discriminator_gradients(flawed: bool, sizes: Sizes) -> Step:
    latent, width, levels, batch = sizes.of((128, 64, 5, 64), (8, 8, 3, 2))
    net_g = seeded(lambda: generator_of(latent, width // 2, levels), sizes)
    net_d = seeded(lambda: Discriminator(2 * width, 4 if levels > 4 else 2), sizes)
    net_g, net_d = (net.to(memory_format=torch.channels_last) for net in (net_g, net_d))
    real = seeded(lambda: torch.randn(batch, 3, 4 << levels, 4 << levels), sizes)
    real = real.to(memory_format=torch.channels_last)
    noise = seeded(lambda: torch.randn(batch, latent, 1, 1), sizes)
    optimizer_g, optimizer_d = fused_adamw(net_g), fused_adamw(net_d)

    def step() -> Tensor:
        with autocast(sizes):
            fake = net_g(noise)
        if not flawed:
            set_requires_grad(net_d, True)
        optimizer_d.zero_grad()
        with autocast(sizes):
            loss_d = gan_loss(net_d(fake.detach()), False) + gan_loss(net_d(real), True)
        loss_d.backward()
        optimizer_d.step()
        if not flawed:
            set_requires_grad(net_d, False)
        optimizer_g.zero_grad()
        with autocast(sizes):
            loss_g = gan_loss(net_d(fake), True)  # flaw: discriminator_gradients
        loss_g.backward()  # flaw: discriminator_gradients
        optimizer_g.step()
        return (loss_d + loss_g).detach()

    return Step(step)


class FlowMatchScheduler:
    """Timesteps and noise levels of flow matching."""

    def __init__(self, steps: int, shift: float, device: str) -> None:
        sigmas = torch.linspace(1, 0, steps + 1)[:-1]
        self.sigmas = (shift * sigmas / (1 + (shift - 1) * sigmas)).to(device)
        self.timesteps = self.sigmas * steps

    def sigmas_of(self, timesteps: Tensor) -> Tensor:
        indices = [self.index_of(t) for t in timesteps]  # flaw: sigmas_by_timestep
        return self.sigmas[indices].view(-1, 1, 1, 1)

    def index_of(self, timestep: Tensor) -> int:
        return (self.timesteps == timestep).nonzero().item()  # flaw: sigmas_by_timestep


class Denoiser(nn.Module):
    """A small U-Net that knows the timestep by a shift of its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.unet = UNet(4, width, 4)
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, 4))

    def forward(self, x: Tensor, timesteps: Tensor) -> Tensor:
        return self.unet(x + self.time(timesteps[:, None] / 1000)[:, :, None, None])


def sigmas_by_timestep(flawed: bool, sizes: Sizes) -> Step:
    width, batch, side = sizes.of((128, 24, 64), (8, 2, 16))
    model = seeded(lambda: Denoiser(width), sizes).to(memory_format=torch.channels_last)
    latents = seeded(lambda: torch.randn(batch, 4, side, side), sizes)
    noise = latents.flip(0)
    scheduler = FlowMatchScheduler(1000, 3.0, sizes.device)
    optimizer = fused_adamw(model)
    generator = torch.Generator(sizes.device).manual_seed(5)

    def step() -> Tensor:
        u = torch.rand(batch, device=latents.device, generator=generator)
        indices = (u * 1000).long()
        timesteps = scheduler.timesteps[indices]
        if flawed:
            sigmas = scheduler.sigmas_of(timesteps)
        else:
            sigmas = scheduler.sigmas[indices].view(-1, 1, 1, 1)
        noisy = (1 - sigmas) * latents + sigmas * noise
        optimizer.zero_grad()
        with autocast(sizes):
            loss = F.mse_loss(model(noisy, timesteps), noise - latents)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Step(step)


class ResBlock(nn.Module):
    """HiFi-GAN's residual block of dilated convolutions."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.convs1, self.convs2 = nn.ModuleList(), nn.ModuleList()
        for dilation in (1, 3, 5):
            reach = dilation * (kernel - 1) // 2
            conv = nn.Conv1d(channels, channels, kernel, 1, reach, dilation=dilation)
            self.convs1.append(weight_norm(conv))
            conv = nn.Conv1d(channels, channels, kernel, 1, (kernel - 1) // 2)
            self.convs2.append(weight_norm(conv))

    def forward(self, x: Tensor) -> Tensor:
        for c1, c2 in zip(self.convs1, self.convs2, strict=True):
            xt = F.leaky_relu(x, 0.1)
            xt = c1(xt)  # flaw: weight_norm_in_inference
            xt = F.leaky_relu(xt, 0.1)
            xt = c2(xt)  # flaw: weight_norm_in_inference
            x = xt + x
        return x


class Vocoder(nn.Module):
    """HiFi-GAN's generator of waveforms."""

    kernels = (3, 7, 11)

    def __init__(self, bands: int, width: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        self.conv_pre = weight_norm(nn.Conv1d(bands, width, 7, 1, 3))
        self.ups, self.resblocks = nn.ModuleList(), nn.ModuleList()
        for at, rate in enumerate(rates):
            inner = width >> (at + 1)
            up = nn.ConvTranspose1d(2 * inner, inner, 2 * rate, rate, rate // 2)
            self.ups.append(weight_norm(up))
            self.resblocks.extend(ResBlock(inner, kernel) for kernel in self.kernels)
        self.conv_post = weight_norm(nn.Conv1d(inner, 1, 7, 1, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_pre(x)  # flaw: weight_norm_in_inference
        count = len(self.kernels)
        for at, up in enumerate(self.ups):
            x = F.leaky_relu(x, 0.1)
            x = up(x)  # flaw: weight_norm_in_inference
            blocks = self.resblocks[count * at : count * (at + 1)]
            x = sum(block(x) for block in blocks) / count
        x = F.leaky_relu(x)
        return torch.tanh(self.conv_post(x))  # flaw: weight_norm_in_inference

    def remove_weight_norm(self) -> None:
        for module in self.modules():
            if parametrize.is_parametrized(module, "weight"):
                parametrize.remove_parametrizations(module, "weight")


def weight_norm_in_inference(flawed: bool, sizes: Sizes) -> Step:
    bands, width, rates, frames = sizes.of((80, 512, (8, 8, 2, 2), 128), (8, 16, (2, 2), 8))
    model = seeded(lambda: Vocoder(bands, width, rates), sizes).eval()
    if not flawed:
        model.remove_weight_norm()
    mel = seeded(lambda: torch.randn(1, bands, frames), sizes)

    @torch.inference_mode()
    def step() -> Tensor:
        return model(mel).abs().mean()

    return Step(step)
