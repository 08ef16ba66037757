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

`-o changed.html` (`.export()`) writes a page without a script: the ledger and each table, with bars
from the middle, and what a [gate](gate.md) said. `-o both.pftrace` is for Perfetto: the runs of
both sides on one time axis, where the first recorded steps begin together, and every group of
tracks says whose it is.

One line of a GPT's MLP was edited, and another was given a scale, on an H200:

    base  before · 10 steps · NVIDIA H200 · torch 2.11.0+cu130 · gpt.py --steps 16
    head  after · 10 steps · NVIDIA H200 · torch 2.11.0+cu130 · gpt.py --steps 16
    a step: 31.7 ms -> 29.3 ms, -2.38 ms (-7.5%), 95%: -15.8 ms to +11.1 ms: inside the noise
    its device time: 13.5 ms -> 14.6 ms, +1.17 ms (+8.7%), 95%: +875 us to +1.46 ms: slower
    forward 4.04 ms -> 4.81 ms (+19.0%), backward 8.31 ms -> 8.59 ms (+3.4%), recompute 229 us ->
    331 us (+44.6%), grad. acc. 229 us -> 246 us (+7.3%), optimizer 667 us -> 664 us (-0.3%), other
    739 ns -> 739 ns (+0.0%)
        base      head     change            wall time of a step
     13.9 ms   10.8 ms   -3.02 ms   -21.8% ~ device idle: launching
     13.5 ms   14.6 ms   +1.17 ms    +8.7%   compiled: led to source lines
              95%: +875 us to +1.46 ms
     2.15 ms   1.62 ms    -529 us   -24.6% ~ device idle: autograd's engine
      557 us    301 us    -257 us   -46.1% ~ device idle: launch latency
      431 us    616 us    +184 us   +42.7% ~ device idle: between launches
     1.19 ms   1.26 ms   +78.9 us    +6.7% ~ device idle: Python between ops
     3.23 us   2.51 us    -715 ns   -22.1% ~ device idle: synchronisation
      739 ns    739 ns      +0 ns    +0.0% ~ eager: led to source lines

    by line: 1 slower, 1 faster, 1 new, 18 inside the noise, 8 equal (together +4.48 us)
        base      head     change            line
               3.09 ms   +3.09 ms      new   gpt.py:40  return self.down(h + 0.01 * h.square().mean…
              blocks.*.mlp.down, blocks.*.mlp · backward +1.79 ms, forward +1.30 ms, recompute +7.9…
     5.57 ms   3.61 ms   -1.97 ms   -35.3%   gpt.py:36 -> :39  h = F.gelu(self.up(x))
              edited · 95%: -2.06 ms to -1.87 ms · blocks.*.mlp.up, blocks.*.mlp, blocks.*.mlp.down…
      776 us    816 us   +39.6 us    +5.1%   gpt.py:26 -> :29  return self.out(attended.transpose(1…
              moved · 95%: +22.8 us to +56.3 us · blocks.*.attention.out · backward +38.2 us, forwa…

    idle time by line: 15 inside the noise (together -2.74 ms)

    fusions that changed: 2
    486 us -> 1.25 ms, +767 us (+157.8%), 95%: +747 us to +787 us: slower
      before  486 us, 12 launches: gelu (gpt.py:36 forward)  [triton_poi_fused_gelu_view_8]
      now     1.25 ms, 12 launches: gelu (gpt.py:39 forward); _to_copy, add, mean, mul, pow
              (gpt.py:40 forward)  [triton_red_fused__to…mean_mul_pow_view_8]
    656 us -> 973 us, +318 us (+48.4%), 95%: +300 us to +335 us: slower
      before  656 us, 12 launches: gelu (gpt.py:36 recompute); gelu_backward (gpt.py:36 backward)
              [triton_poi_fused_gel…elu_backward_view_8]
      now     973 us, 12 launches: add (gpt.py:39 grad. acc.); gelu (gpt.py:39 recompute);
              gelu_backward (gpt.py:39 backward); _to_copy, div, mul (gpt.py:40 backward); _to_copy
              (gpt.py:40 recompute); 2 more  [triton_red_fused__to…_mul_pow_sum_view_6]
    ~ inside the noise
    note: each side is one run: runs of one program are taken to differ as is usual (device time by
    0.75%, idle time by 25%); several runs of each side tell it
    note: step 10 of 10 of the base took 2.10 times as long as usual: it is in the means, and makes
    intervals longer

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
