"""Lines are matched across an edit by their texts and order, and not where that is not sure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_ext.comparison.records import Match
from profiler_ext.comparison.source_matching import Text, match_files, match_in_file, match_lines
from profiler_ext.records.lineage import Frame
from tests.comparison.by_hand import lines

BEFORE = """
class MLP:
    def forward(self, x):
        hidden = F.gelu(self.up(x))  #
        hidden = self.dropout(hidden)  #
        return self.down(hidden)  #

class Block:
    def forward(self, x):
        x = x + self.attention(self.norm_1(x))  #
        x = x + self.mlp(self.norm_2(x))  #
        return x

class GPT:
    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]  #
        x = self.norm(x)  #
        return self.head(x)  #
"""


def matched(base: str, head: str) -> dict[int, tuple[int, Match]]:
    """Match two versions of one file, both ways, and return how the base's lines went."""
    old, new = lines(base), lines(head)
    there, back = match_lines(old, new), match_lines(new, old)
    assert {other: mine for mine, other in there.head_of.items()} == back.head_of
    assert {there.head_of[mine]: why for mine, why in there.match.items()} == back.match
    return {n: (there.head_of[file, n][1], there.match[file, n]) for file, n in there.head_of}


def test_a_file_that_did_not_change_matches_line_by_line():
    numbers = [number for _, number in lines(BEFORE)]
    assert matched(BEFORE, BEFORE) == {n: (n, Match.SAME) for n in numbers}


def test_lines_below_an_inserted_one_are_moved_and_it_is_new():
    head = BEFORE.replace("class Block:", "LIMIT = 4\n\nclass Block:").replace(
        "hidden = self.dropout(hidden)  #",
        "hidden = self.dropout(hidden)  #\n        hidden = torch.clamp(hidden, max=LIMIT)  #",
    )
    assert matched(BEFORE, head) == {
        3: (3, Match.SAME),
        4: (4, Match.SAME),
        5: (6, Match.MOVED),
        9: (12, Match.MOVED),
        10: (13, Match.MOVED),
        15: (18, Match.MOVED),
        16: (19, Match.MOVED),
        17: (20, Match.MOVED),
    }


def test_a_line_that_is_gone_does_not_make_the_rest_new():
    head = BEFORE.replace("        hidden = self.dropout(hidden)  #\n", "")
    found = matched(BEFORE, head)
    assert 4 not in found
    assert found[3] == (3, Match.SAME)
    assert {n: to for n, (to, _) in found.items() if n > 4} == {
        5: 4,
        9: 8,
        10: 9,
        15: 14,
        16: 15,
        17: 16,
    }


def test_a_line_whose_text_was_changed_is_edited_where_it_stands_and_reads_alike():
    head = BEFORE.replace("F.gelu(self.up(x))", "F.silu(self.up(x))")
    found = matched(BEFORE, head)
    assert found.pop(3) == (3, Match.EDITED)
    assert set(found.values()) == {(n, Match.SAME) for n in found}


def test_a_line_that_became_something_else_is_gone_and_new():
    head = BEFORE.replace("return self.down(hidden)  #", "raise StopIteration  #")
    assert 5 not in matched(BEFORE, head)


def test_a_line_that_moved_and_was_edited_is_found_between_its_neighbours():
    head = "import math\n" + BEFORE.replace(
        "self.mlp(self.norm_2(x))", "self.mlp(self.norm_2(x), 2)"
    )
    found = matched(BEFORE, head)
    assert found[10] == (12, Match.EDITED)
    assert {to - n for n, (to, _) in found.items()} == {2}


def test_a_class_that_moved_below_another_is_found_there():
    first, second, third = BEFORE.strip("\n").split("\n\n")
    found = matched(BEFORE, "\n\n".join((second, first, third)))
    assert {n: to for n, (to, _) in found.items()} == {
        3: 9,
        4: 10,
        5: 11,
        9: 3,
        10: 4,
        15: 15,
        16: 16,
        17: 17,
    }


def test_a_function_of_another_name_keeps_its_lines():
    head = "\n\n" + BEFORE.replace("def forward(self, tokens)", "def features(self, tokens)")
    shifted = BEFORE.replace("class MLP", "from torch import nn\n\nclass MLP")
    shifted = shifted.replace("def forward(self, tokens)", "def features(self, tokens)")
    assert matched(BEFORE, head)[15] == (15, Match.SAME)
    assert matched(BEFORE, shifted)[15] == (17, Match.MOVED)
    assert matched(BEFORE, shifted)[16] == (18, Match.MOVED)


def test_one_text_in_several_places_is_matched_where_it_moved_as_its_neighbours():
    twice = """
def forward(self, x):
    first = self.first_projection(x)  #
    x = act(x)  #
    second = self.second_projection(x)  #
    x = act(x)  #
    return first + second + self.third(x)  #
"""
    head = twice.replace("first =", "note = 1\n    first =")
    assert matched(twice, head) == {
        2: (3, Match.MOVED),
        3: (4, Match.MOVED),
        4: (5, Match.MOVED),
        5: (6, Match.MOVED),
        6: (7, Match.MOVED),
    }


def test_of_one_text_in_several_places_none_is_guessed():
    base = "def forward(self, x):\n    x = act(x)  #\n    x = act(x)  #\n"
    head = "def forward(self, x):\n    y = 1\n    z = 2\n    x = act(x)  #\n"
    assert matched(base, head) == {}


def test_a_short_text_known_in_two_places_of_one_version_is_not_matched():
    """The base saw one place of the text run, the head another one; the file did not change."""
    text = """
def forward(self, x):
    x = self.token_embedding(tokens_of(x))  {}
    x = norm(x)  {}
    x = self.attention_of_all_heads(x)  #
    x = norm(x)  {}
    return self.head_projection(x)  #
"""
    found = matched(text.format("#", "#", ""), text.format("#", "", "#"))
    assert found == {2: (2, Match.SAME), 4: (4, Match.SAME), 6: (6, Match.SAME)}


def test_a_line_that_one_side_alone_ran_does_not_move_the_others():
    found = matched(BEFORE, BEFORE.replace("self.dropout(hidden)  #", "self.dropout(hidden)"))
    assert found == {n: (n, Match.SAME) for n in (3, 5, 9, 10, 15, 16, 17)}


def test_lines_without_text_match_by_number_in_a_file_that_did_not_change():
    base = lines(BEFORE)
    head = {key: Frame(f.file, f.line, f.function, None) for key, f in base.items()}
    found = match_lines(base, head)
    assert found.head_of == {key: key for key in base}
    assert set(found.match.values()) == {Match.NUMBER}


def test_lines_without_text_do_not_match_in_a_file_that_changed():
    base = lines(BEFORE)
    head = lines("import math\n" + BEFORE)
    unknown = "model.py", 18
    head[unknown] = Frame("model.py", 18, "forward", None)
    base[unknown] = Frame("model.py", 18, "forward", None)
    assert unknown not in match_lines(base, head).head_of


def test_without_any_text_nearly_all_lines_must_have_one_number():
    base = {("m.py", n): Frame("m.py", n, "forward") for n in range(1, 11)}
    head = {("m.py", n): Frame("m.py", n, "forward") for n in range(2, 12)}
    assert len(match_lines(base, head).head_of) == 9
    far = {("m.py", n): Frame("m.py", n, "forward") for n in range(6, 16)}
    assert match_lines(base, far).head_of == {}


def test_a_line_that_reads_a_little_alike_is_edited_only_where_it_stood():
    text = """
def forward(self, x):
    x = self.token_embedding(x)  #
    x = torch.cat([x, x])  #
    return self.head_projection(x)  #
"""
    there = text.replace("torch.cat([x, x])", "torch.stack((x, y), 1)")
    farther = there.replace("    x = torch.stack", "\n\n    x = torch.stack").replace(
        "    return", "\n\n    return"
    )
    assert matched(text, there)[3] == (3, Match.EDITED)
    assert 3 not in matched(text, farther)


def test_what_dynamo_calls_a_function_after_a_break_does_not_matter():
    base = {("m.py", 3): Frame("m.py", 3, "work", "return model.down(h)")}
    resumed = "torch_dynamo_resume_in_work_at_2"
    head = {("m.py", 3): Frame("m.py", 3, resumed, "return model.down(h)")}
    assert match_lines(base, head).match == {("m.py", 3): Match.SAME}


def test_a_file_of_another_name_is_found_by_its_lines():
    base, head = lines(BEFORE, "models/old.py"), lines("\n\n" + BEFORE, "models/new.py")
    found = match_files(base, head)
    assert (found.head_of, found.match) == (
        {"models/old.py": "models/new.py"},
        {"models/old.py": Match.RENAMED},
    )
    assert len(match_lines(base, head).head_of) == 8


def test_a_path_that_both_sides_have_is_matched_with_no_other():
    base = lines(BEFORE, "model.py")
    head = lines(BEFORE, "copy.py") | lines("def f(x):\n    return x.exp()  #\n", "model.py")
    found = match_files(base, head)
    assert found.head_of == {"model.py": "model.py"}
    assert match_lines(base, head).head_of == {}


def test_of_two_files_that_are_equally_alike_none_is_chosen():
    head = lines(BEFORE, "a.py") | lines(BEFORE, "b.py")
    assert match_files(lines(BEFORE, "old.py"), head).head_of == {}


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_equal_lines_do_not_make_files_the_same(count):
    text = "def f(x):\n" + "\n".join(f"    x = some.function_of_{n}(x)  #" for n in range(count))
    assert match_files(lines(text, "a.py"), lines(text, "b.py")).head_of == {}


MLP_LINE = "return self.down(F.gelu(self.up(x)))"
TEXTS = ("x = f(x)", "x = x + 1", MLP_LINE, "y = g(x)", "z")
known_lines = st.dictionaries(
    st.integers(1, 12),
    st.tuples(st.sampled_from(["forward", "work"]), st.sampled_from([*TEXTS, MLP_LINE + " + 1"])),
    max_size=9,
)


@given(known_lines, known_lines)
def test_any_two_versions_match_one_to_one_and_alike_both_ways(
    old: dict[int, tuple[str, str]], new: dict[int, tuple[str, str]]
) -> None:
    base, head = ([Text(number, *side[number]) for number in sorted(side)] for side in (old, new))
    there, back = match_in_file(base, head), match_in_file(head, base)
    assert {to: (number, why) for number, (to, why) in there.items()} == back
    for number, (to, why) in there.items():
        assert (why is Match.EDITED) == (old[number][1] != new[to][1])
        assert (why is Match.SAME) <= (number == to)


@given(known_lines)
def test_any_version_matches_itself_whole(side: dict[int, tuple[str, str]]) -> None:
    texts = [Text(number, *side[number]) for number in sorted(side)]
    assert match_in_file(texts, texts) == {n: (n, Match.SAME) for n in side}
