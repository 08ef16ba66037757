"""Owns the outcome of a gate as JUnit XML: a test case a condition, as CI servers read it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from profiler_ext.exporters.gate_texts import judged_text, result_lines
from profiler_ext.files.writing import replacing
from profiler_ext.gate.records import Gate, Result
from profiler_ext.gate.words import Outcome

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What an XML document may not hold (XML 1.0, 2.2), escaped or not."""


def write_junit(gate: Gate, path: Path, *, is_too_few_allowed: bool = False) -> None:
    """Write what came of each condition as JUnit XML.

    Args:
        gate: what came of all conditions.
        path: the file; replaced when it is there.
        is_too_few_allowed: a condition with too few steps is skipped, and not a failure.

    Raises:
        OutputError: The file cannot be written.
    """
    with replacing(path) as file:
        file.write(junit(gate, is_too_few_allowed=is_too_few_allowed))


def junit(gate: Gate, *, is_too_few_allowed: bool = False) -> bytes:
    """Return what came of each condition as JUnit XML.

    Args:
        gate: what came of all conditions.
        is_too_few_allowed: a condition with too few steps is skipped, and not a failure.
    """
    suite = ElementTree.Element("testsuite", {"name": "profiler-ext diff"})
    for result in gate.results:
        _add_case(suite, result, is_too_few_allowed)
    for name, tag in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
    suite.attrib |= {"tests": str(len(gate.results)), "errors": "0"}
    suites = ElementTree.Element("testsuites", dict(suite.attrib))
    suites.append(suite)
    ElementTree.indent(suites)
    written: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return written


def _add_case(suite: ElementTree.Element, result: Result, is_too_few_allowed: bool) -> None:
    named = {"classname": "profiler-ext", "name": _clean(result.condition.text), "time": "0"}
    case = ElementTree.SubElement(suite, "testcase", named)
    details = _clean("\n".join(result_lines(result)))
    tag = _tag(result.outcome, is_too_few_allowed)
    if tag is None:
        ElementTree.SubElement(case, "system-out").text = f"{result.outcome.words}\n{details}"
        return
    attributes = {"message": _clean(judged_text(result.judged[0]))}
    typed = {"type": str(result.outcome)} if tag == "failure" else {}
    ElementTree.SubElement(case, tag, attributes | typed).text = details


def _tag(outcome: Outcome, is_too_few_allowed: bool) -> str | None:
    if outcome is Outcome.FAILED:
        return "failure"
    if outcome in (Outcome.TOO_FEW, Outcome.NOT_COMPARABLE):
        return "skipped" if is_too_few_allowed else "failure"
    return None


def _clean(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
