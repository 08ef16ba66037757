"""The cases of JSON itself: depth, digits, duplicates, surrogates, cuts, bare words."""

from __future__ import annotations

from collections.abc import Callable

from verification.hostile.making import (
    EVENTS,
    OURS,
    Case,
    changed,
    dumped,
    first,
    made,
    session,
    text,
    with_text,
)

_DEPTH = 200_000
_ARGS = b'"External id": 7,'
_NESTED_LIST = b"[" * _DEPTH + b"]" * _DEPTH
_NESTED_OBJECT = b'{"a":' * _DEPTH + b"1" + b"}" * _DEPTH
_HEAD = b'"schemaVersion": 1,'


def _in_args(member: bytes, refused: str | None = None) -> Case:
    return Case(with_text(_ARGS, _ARGS + b'"odd": ' + member + b","), refused)


def _in_head(member: bytes, refused: str | None = None) -> Case:
    return Case(with_text(_HEAD, _HEAD + member + b","), refused)


def _in_ours(member: bytes, refused: str | None = None) -> Case:
    return Case(with_text(b'"settings":{', b'"settings":{"odd":' + member + b","), refused)


def _named(name: str) -> Callable[[], bytes]:
    def build() -> bytes:
        value = session()
        for category in ("cpu_op", "kernel", "user_annotation", "cuda_runtime"):
            first(value, category)["name"] = name
        for node in value[OURS]["graphs"][0]["nodes"]:
            node["stack"][-1]["code"] = node["stack"][-1]["function"] = name
            node["stack"][-1]["file"] = f"/src/{name}.py"
            node["modules"] = [{"path": name, "class_name": name}]
        value[OURS]["graphs"][0]["provenance"]["call_sites"][0]["kernel"] = name
        return dumped(value)

    return build


CASES = {
    "JSON cut in an event": Case(made(lambda: text()[:-40]), "cut short"),
    "JSON cut in our section": Case(made(lambda: text()[:9000]), "cut short"),
    "JSON with text after it": Case(made(lambda: text() + b"more"), "JSON"),
    "two JSON values": Case(made(lambda: text() + text()), "JSON"),
    "JSON with a comment": Case(with_text(_HEAD, _HEAD + b"// no\n"), "JSON"),
    "single quotes": Case(with_text(b'"schemaVersion"', b"'schemaVersion'"), "JSON"),
    "a comma at the end": Case(with_text(b"\n]}", b",\n]}"), "JSON"),
    "lists nested 200,000 deep": Case(made(lambda: _NESTED_LIST), "a list"),
    "objects nested 200,000 deep": Case(made(lambda: _NESTED_OBJECT), "deep"),
    "brackets opened 200,000 times": Case(made(lambda: b"[" * _DEPTH), "a list"),
    "lists nested 200,000 deep in an argument": _in_args(_NESTED_LIST, "deep"),
    "objects nested 200,000 deep in an argument": _in_args(_NESTED_OBJECT, "deep"),
    "lists nested 200,000 deep in the header": _in_head(b'"odd":' + _NESTED_LIST, "deep"),
    "lists nested 200,000 deep in our section": _in_ours(_NESTED_LIST, "deep"),
    "lists nested 900 deep in an argument": _in_args(b"[" * 900 + b"]" * 900, "deep"),
    "lists nested 100 deep in an argument": _in_args(b"[" * 100 + b"]" * 100),
    "lists nested 100 deep beside a bare word": _in_args(b"[" * 100 + b"NaN" + b"]" * 100),
    "lists nested 200,000 deep beside a bare word": _in_args(
        b"[" * _DEPTH + b"NaN" + b"]" * _DEPTH, "deep"
    ),
    "200,000 brackets in a string": _in_args(b'"' + b"[" * _DEPTH + b'"'),
    "a bracket and a quote escaped in a string": _in_args(b'"\\"[[[[\\\\"'),
    "a million digits in an argument": _in_args(b"9" * 1_000_000, "digits"),
    "a million digits after the point in an argument": _in_args(b"0." + b"9" * 10**6, "digits"),
    "a million digits in the header": _in_head(b'"odd": ' + b"9" * 1_000_000, "digits"),
    "a million digits in a time": Case(with_text(b'"dur": ', b'"dur": ' + b"1" * 10**6), "digits"),
    "5,000 digits in a time": Case(with_text(b'"dur": ', b'"dur": ' + b"1" * 5000), "digits"),
    "5,000 digits in an id": Case(with_text(_ARGS, b'"External id": ' + b"7" * 5000 + b","), "dig"),
    "5,000 digits in an id as text": Case(
        with_text(_ARGS, b'"External id": "' + b"7" * 5000 + b'",')
    ),
    "odd digits in an id as text": Case(with_text(_ARGS, '"External id": "٣²", '.encode())),
    "superscripts in an id as text": Case(with_text(_ARGS, b'"External id": "--7", ')),
    "a number of a huge exponent": _in_args(b"1e999999999"),
    "a time of a huge exponent": Case(with_text(b'"dur": ', b'"dur": 1e99999, "x": '), "event"),
    "a time of a small exponent": Case(with_text(b'"dur": ', b'"dur": 1e-99999'), "JSON"),
    "numbers of a million zeros": _in_args(b"0." + b"0" * 1000 + b"1"),
    "a name of 500 kB": Case(made(_named("n" * 500_000)), "long"),
    "a name of 100 kB": Case(made(_named("n" * 100_000))),
    "a key of 20 MB": _in_args(b'1, "' + b"k" * 20_000_000 + b'": 1'),
    "a name with a lone surrogate": Case(made(_named("a\ud800b"))),
    "a name with a surrogate turned round": Case(made(_named("a\udc00\ud800b"))),
    "a name with a NUL": Case(made(_named("a\0b"))),
    "a name with control characters": Case(made(_named("a\x1b[31m\r\n\tb\x07\u202e"))),
    "a name with markup": Case(made(_named("[red]</script><!--[/x] &amp; `|` =1+1"))),
    "a name that is empty": Case(made(_named(""))),
    "a name of dots": Case(made(_named("../../.."))),
    "a name of spaces": Case(made(_named("   "))),
    "a name outside the basic plane": Case(made(_named("\U0001f600" * 20))),
    "the events twice": Case(with_text(b'"traceEvents"', b'"traceEvents": [], "traceEvents"')),
    "the events twice, first in a string": Case(
        with_text(_HEAD, _HEAD + b'"odd": "\\"traceEvents\\": [{}]",')
    ),
    "our section twice": Case(with_text(b'"profilerExt"', b'"profilerExt": 1, "profilerExt"')),
    "the arguments of an event twice": Case(
        with_text(b'"args": {', b'"args": {"a": 1}, "args": {')
    ),
    "the name of an event twice": Case(with_text(b'"ph": "X"', b'"name": "z", "ph": "X"')),
    "an argument twice": Case(with_text(_ARGS, _ARGS + _ARGS)),
    "the events as text within the header": _in_head(b'"odd": [{"ph": "X", "name": "aten::mm"}]'),
    "a copy of the events before them": Case(
        made(
            lambda: dumped(
                {"schemaVersion": 1, "copy": session()[EVENTS], EVENTS: session()[EVENTS]}
            )
        )
    ),
    "bare words everywhere": _in_args(b"[NaN, -Infinity, inf, N/A, nan, Infinity, -inf]"),
    "a bare word as a time": Case(with_text(b'"dur": ', b'"dur": NaN, "x": '), "NaN, an inf"),
    "a bare word in the name": Case(with_text(b'"name": "aten::mm"', b'"name": NaN'), None),
    "a bare word in our section": _in_ours(b"NaN", None),
    "a bare word as a device": Case(with_text(b'"id": 0', b'"id": NaN'), "deviceProperties"),
    "a bare word as base time": Case(
        with_text(b'"baseTimeNanoseconds": ', b'"baseTimeNanoseconds": NaN, "x": '), "Nanoseconds"
    ),
    "a word that is none": _in_args(b"undefined", "JSON"),
    "a million keys in the header": Case(
        made(
            lambda: dumped({f"k{n}": n for n in range(1_000_000)} | session()).replace(
                b'"k0"', b'"k0"', 1
            )
        ),
        None,
    ),
    "a million arguments of an event": Case(
        changed(lambda v: first(v, "kernel")["args"].update({f"k{n}": n for n in range(10**6)}))
    ),
    "a list of a million numbers as an argument": Case(
        changed(lambda v: first(v, "kernel")["args"].update(many=list(range(10**6))))
    ),
    "a million empty lists as an argument": _in_args(b"[" + b"[]," * 10**6 + b"[]]"),
}
