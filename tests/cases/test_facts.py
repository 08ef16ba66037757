"""A fact is broken by a wrong line, module, forward node or order, and says by which."""

import pandas as pd

from tests.cases.facts.claims import Fact, Order

COLUMNS = (
    "kind",
    "step",
    "start_ns",
    "aten_op",
    "phase",
    "code",
    "module",
    "forward_node",
)
TABLE = pd.DataFrame(
    [
        ("extern", 0, 1, "mm", "forward", "self.up(x)", "up", None),
        ("extern", 0, 2, "mm", "forward", "self.down(x)", "down", None),
        ("triton", 0, 3, "mm", "forward", "self.up(x)", "up", None),
        ("extern", 0, 4, "mm", "backward", "self.down(x)", "down", "region_1/mm_1"),
        ("extern", 0, 5, "mm", "backward", "self.up(x)", "up", "mm"),
        ("extern", 1, 6, "mm", "forward", "self.up(x)", "up", None),
        ("extern", 1, 7, "mm", "forward", "self.down(x)", "down", None),
    ],
    columns=COLUMNS,
)
LINES = ("self.up(", "self.down(")


def broken(fact, **changed):
    """Say what is broken where the first row of the table says something else."""
    table = TABLE.copy()
    for column, value in changed.items():
        table.loc[0, column] = value
    return list(fact.broken(table))


def test_a_fact_holds_where_all_rows_have_its_lines_modules_and_forward_nodes():
    assert broken(Fact("mm", "forward", LINES, ("up", "down"))) == []
    assert broken(Fact("mm", "backward", LINES, ("up", "down"), ("mm",))) == []
    assert broken(Fact("mm", "recompute")) == []


def test_a_fact_is_broken_by_a_stray_line_and_by_none():
    fact = Fact("mm", "forward", LINES)
    assert broken(fact, code="y = x") == ["mm in forward: ['y = x'] is wrong, [] is missing"]
    assert broken(fact, code=None) == ["mm in forward: ['no line'] is wrong, [] is missing"]


def test_a_fact_is_broken_by_a_line_that_has_no_time():
    fact = Fact("mm", "forward", (*LINES, "self.head("))
    assert broken(fact) == ["mm in forward: [] is wrong, ['self.head('] is missing"]
    assert broken(Fact("mm", "recompute", ("self.up(",))) == [
        "mm in recompute: [] is wrong, ['self.up('] is missing"
    ]


def test_a_fact_is_broken_by_another_module_and_by_another_forward_node():
    fact = Fact("mm", "forward", LINES, ("up", "down"))
    assert broken(fact, module="head") == ["mm in forward: ['head'] is wrong, [] is missing"]
    assert broken(Fact("mm", "backward", LINES, (), ("addmm",))) == [
        "mm in backward: ['mm'] is wrong, ['addmm'] is missing"
    ]


def test_an_order_is_of_library_calls_in_each_step():
    assert broken(Order("mm", "forward", ("up", "down"))) == []
    assert broken(Order("mm", "forward", ("down", "up"))) == [
        f"mm in forward of step {step}: the order is ['up', 'down']" for step in (0, 1)
    ]
    assert broken(Order("mm", "backward", ("down", "up"))) == ["mm in backward: not in each step"]
