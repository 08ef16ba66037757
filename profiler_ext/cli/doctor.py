"""Owns ``profiler-ext doctor``: its options, and what it does with them."""

from __future__ import annotations

import argparse

from profiler_ext.cli.choices import FAILED
from profiler_ext.cli.printing import say

HELP = "say what fits here, and what does not"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Say what the command line may hold."""
    parser.set_defaults(command=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from profiler_ext.doctor import examine

    findings = examine()
    for finding in findings:
        say(finding.line())
    return FAILED if any(finding.is_fatal for finding in findings) else 0
