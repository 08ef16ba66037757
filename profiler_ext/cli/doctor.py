"""Owns ``profiler-ext doctor``: its options, and what it does with them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from profiler_ext.cli.choices import FAILED, add_format, print_answer
from profiler_ext.cli.parsing import Parser
from profiler_ext.cli.printing import print_line

if TYPE_CHECKING:
    from profiler_ext.doctor import Check
    from profiler_ext.exporters.answers.documents import Doctor

HELP = "say what fits here, and what does not"


def add_options(parser: Parser) -> None:
    """Say what the command line may hold."""
    add_format(parser, ["text", "json"])
    parser.set_defaults(command=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from profiler_ext.doctor import examine

    findings = examine()
    if options.format == "json":
        print_answer(_answer(findings), options)
    else:
        for finding in findings:
            print_line(finding.line())
    return FAILED if any(finding.is_fatal for finding in findings) else 0


def _answer(findings: Sequence[Check]) -> Doctor:
    from profiler_ext.exporters.answers.documents import Doctor
    from profiler_ext.exporters.answers.parts import DoctorCheck

    looked_at = [
        DoctorCheck(subject=f.subject, state=f.state, detail=f.detail, is_fatal=f.is_fatal)
        for f in findings
    ]
    return Doctor(looked_at=looked_at)
