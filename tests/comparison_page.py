"""Owns the text of ``docs/comparison.md``, before the columns that are made from the list."""

from profiler_ext.comparison.uncertainty import (
    DEVICE_BETWEEN_RUNS,
    FALSE_DISCOVERIES,
    FEWEST_STEPS,
    IDLE_BETWEEN_RUNS,
)

COMPARISON = f"""# Comparing runs

    profiler-ext diff before after                      # folders of sessions, or traces
    profiler-ext diff --base b1 b2 b3 --head h1 h2 h3   # several runs of each side
    profiler_ext.diff("before", "after").table("line")  # pandas; also .report(), .comparison

The *base* came before, the *head* is compared with it. `--by` takes `ledger`, `phase`, `line`,
`module`, `layer` (modules with numbers as `*`), `op`, `kernel` and `compile`; `--format` takes
`text`, `json` (`comparison` in [answers.schema.json](answers.schema.json)), `md` for a pull
request and `csv`. The words of the columns `account`, `match` and `verdict` are in
[words.md](words.md).

**What the times are.** Time of a mean recorded step, on one rank. A row of device time is the
whole time of the launches that the steps enqueued, as in the tables of a session. The ledger
counts the wall time of the steps; what lies between the two are rows of their own: idle time by
cause and line, launches that overlap (below zero), and what ran in another step's span than the
one that enqueued it. So the rows of each table, `compile` aside, add up to the ledger of each
side, to the nanosecond. Where the CPU runs ahead of the device, the wall time of the recorded
steps is the CPU's, and the device time is what tells; the report says so. Compile time is that of
a run.

**What is matched.** A recording holds the text of the lines that ran or lead to such a line;
files on disk may have changed since, and are not read. Lines are matched by their texts,
functions and order: a text that stands once on each side matches; one that stands more often, or
a short one, where it moved as its neighbours did; a line whose text was changed, where it stands
between the same neighbours and reads alike. Files of other names are matched where most of their
lines are equal, modules of other names where they have the same lines and ops and the same
numbers in their path, ops where compiled graphs and eager work spell them differently, and
kernels by what they compute, since their names are numbered anew by each compile and differ by
device. A path that both sides have is never matched with another. What is not sure is `gone` and
`new`. Over 600 edits of this repository, of which the matching knew a part of the lines, 12,953
lines were matched rightly, 7 wrongly and 57 not at all, and 14 of 273 lines that were called
edited were others (`python -m benchmarks.matched_lines`).

**Fusions.** What a launch computes is the set of its ops, each with its line and phase; ops that
only look at memory do not count. Sets that one side alone launches are put together with those of
the other side that share most of their time: what was launched before, what now, and what both
take.

**What is a change.** A row of device time that is in every step of one side and in none of the
other is `new` or `gone`. All else is tested. The unit is the largest thing that was repeated:
with several runs of a side each run is one value, since two runs of one program differ by more
than the steps of one do (Kalibera and Jones, *Quantifying Performance Changes with Effect Size
Confidence Intervals*, 2012). With one run of each side its steps are the values, at least
{FEWEST_STEPS} of each; fewer are `too_few`, and nothing is called a change but what is new or
gone. What follows each other in one run depends on what came before, so correlated steps count as
fewer ones, and what two runs of one program usually differ by is put in
({DEVICE_BETWEEN_RUNS:.2%} of device time, {IDLE_BETWEEN_RUNS:.0%} of idle time, which is the
CPU's: as five runs of a GPT did on an H200, where no row of device time of ten pairs of runs was
called a change); several runs tell it better. The interval of runs rests on the part of their
mean that the runs of both sides differ by, that of steps is Welch's; of a handful of values a
bootstrap's is too short. As many rows are compared at once, those that are called `slower` and
`faster` are chosen so that about {FALSE_DISCOVERIES:.0%} of them are not (Benjamini and Hochberg,
1995; `q_value`). What is inside the noise is counted, and not shown.

**Two devices, two versions, two ranks.** Where the devices differ, each row has its part of the
device time as well (`base_fraction`, `head_fraction` in tables). Other versions of torch and
other ranks are said and compared all the same: `profiler-ext diff out/rank_0 out/rank_1`."""
