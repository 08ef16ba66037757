"""Cells of notebooks are matched by their texts, and by their numbers where no text tells."""

from __future__ import annotations

from profiler_ext.comparison.records import Match
from profiler_ext.comparison.source_matching import match_files, match_full_text
from profiler_ext.records.lineage import Frame

MLP_CELL = "class MLP(nn.Module):\n    def forward(self, x):\n        return self.down(self.up(x))"
STEP_CELL = "loss = model(x)\nloss.backward()"


def cells_matched(base: dict[str, str], head: dict[str, str]) -> dict[str, str]:
    """Match cells by name and text, both ways."""
    texts = [{name: text.split("\n") for name, text in side.items()} for side in (base, head)]
    known = [
        {
            (name, n): Frame(name, n, "", code)
            for name in side
            for n, code in enumerate(side[name], 1)
        }
        for side in texts
    ]
    there = match_files(known[0], known[1], (texts[0], texts[1])).head_of
    back = match_files(known[1], known[0], (texts[1], texts[0])).head_of
    assert back == {other: mine for mine, other in there.items()}
    return dict(there)


def test_a_cell_is_known_by_its_text_and_not_by_its_number():
    edited = MLP_CELL.replace("self.up(x)", "F.gelu(self.up(x))")
    before = {"In[2]": MLP_CELL, "In[3]": STEP_CELL}
    assert cells_matched(before, {"In[3]": MLP_CELL + "\n# run", "In[4]": STEP_CELL}) == {
        "In[2]": "In[3]",
        "In[3]": "In[4]",
    }
    assert cells_matched(before, {"In[2]": edited, "In[3]": STEP_CELL}) == {
        "In[2]": "In[2]",
        "In[3]": "In[3]",
    }
    assert cells_matched(before, {"In[2]": "x = 1", "In[3]": "y = 2"}) == {}


def test_of_two_cells_with_one_text_each_is_that_of_its_number():
    twice = {"In[3]": STEP_CELL, "In[4]": STEP_CELL}
    assert cells_matched(twice, twice) == {"In[3]": "In[3]", "In[4]": "In[4]"}


def test_a_cell_that_no_text_is_known_of_has_its_number_alone():
    here = {("In[3]", 1): Frame("In[3]", 1, "f", None)}
    assert match_files(here, here, ({"In[3]": ()}, {"In[3]": ()})).head_of == {"In[3]": "In[3]"}


def test_the_lines_of_a_cell_match_by_its_whole_text():
    assert match_full_text(["a = 1", "", "b = f(a)", "c = 3"], ["b = f(a, 2)", "c = 3"]) == {
        3: (1, Match.EDITED),
        4: (2, Match.MOVED),
    }
