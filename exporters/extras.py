"""Optional dependencies (extras), and how to install them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from profiler_ext.errors import MissingExtraError


@dataclass(frozen=True, slots=True)
class Extra:
    """The packages that one feature needs beyond the package's own dependencies."""

    name: str  # as in ``pyproject.toml``
    packages: tuple[str, ...]
    module: str  # importable once installed

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"pip install 'profiler-ext[{self.name}]'"

    @property
    def is_there(self) -> bool:
        """Whether it is installed; imports nothing."""
        return find_spec(self.module) is not None

    def require(self, purpose: str) -> None:
        """Raise unless it can be imported."""
        try:
            import_module(self.module)
        except ImportError as error:
            raise MissingExtraError(
                f"{purpose} needs {self.module}, which is not installed; run: {self.install}"
            ) from error


PARQUET = Extra("parquet", ("pyarrow",), "pyarrow")
TENSORBOARD = Extra("tensorboard", ("tensorboard", "torch-tb-profiler"), "tensorboard")
MCP = Extra("mcp", ("mcp",), "mcp")
CLUSTER = Extra(
    "cluster", ("dask", "distributed", "fsspec", "pyarrow", "cryptography"), "distributed"
)
COMPLETION = Extra("completion", ("shtab",), "shtab")
HUGGINGFACE = Extra("huggingface", ("transformers", "accelerate"), "transformers")
LIGHTNING = Extra("lightning", ("lightning",), "lightning")
WANDB = Extra("wandb", ("wandb",), "wandb")
MLFLOW = Extra("mlflow", ("mlflow-skinny",), "mlflow")
# Integrations with training libraries.
TRAINING = (HUGGINGFACE, LIGHTNING, WANDB, MLFLOW)
EXTRAS = (TENSORBOARD, PARQUET, MCP, CLUSTER, COMPLETION, *TRAINING)
