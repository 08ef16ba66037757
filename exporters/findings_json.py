"""Owns findings as JSON, for programs: a stated schema, with a number that changes with it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from profiler_ext.findings import Figure, FigureUnit, Finding, Findings, Unjudged
from profiler_ext.findings import Where as Place

SCHEMA_VERSION = 1


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a session's findings are written as.

    Attributes:
        schema_version: the number of this schema.
        step_ns: wall time of the usual step.
        judged: how many rules could be judged.
        findings: the findings, what has most at stake first.
        unjudged: the rules that could not be judged, and why.
    """

    schema_version: int
    step_ns: int
    judged: int
    findings: list[Entry]
    unjudged: list[Unjudged]


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finding: its fields as the record has them, and the part of the whole that is at stake."""

    rule: str
    rank: int
    what: str
    where: Place
    at_stake_ns: int
    of_ns: int
    fraction: float
    stake: str
    sureness: str
    why: list[Number]
    remedy: str
    shared_with: list[str]
    page: str


class Number(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure: a number in its unit, or a text."""

    name: str
    value: float | str
    unit: FigureUnit


def findings_json(findings: Findings) -> str:
    """Return findings as one JSON object.

    Args:
        findings: what the rules found.
    """
    document = Document(
        schema_version=SCHEMA_VERSION,
        step_ns=findings.step_ns,
        judged=findings.judged,
        findings=[_entry(each) for each in findings.found],
        unjudged=list(findings.unjudged),
    )
    # In ASCII no name steers a terminal.
    return json.dumps(msgspec.to_builtins(document)) + "\n"


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of what :func:`findings_json` writes."""
    return msgspec.json.schema(Document)


def _entry(finding: Finding) -> Entry:
    return Entry(
        rule=finding.rule,
        rank=finding.rank,
        what=finding.what,
        where=finding.where,
        at_stake_ns=finding.at_stake_ns,
        of_ns=finding.of_ns,
        fraction=finding.fraction,
        stake=finding.stake,
        sureness=finding.sureness,
        why=[_number(each) for each in finding.why],
        remedy=finding.remedy,
        shared_with=list(finding.shared_with),
        page=f"findings.md#{finding.rule}",
    )


def _number(figure: Figure) -> Number:
    return Number(figure.name, figure.value, figure.unit)
