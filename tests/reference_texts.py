"""What a person wrote of the pages that ``tests.reference`` makes: how each begins."""

GAPS = """# Gaps

Time that is not attributed to a line or an op has its own row in every table, with the reason in
the column `gap`. Nothing is dropped and nothing is guessed. The step time breakdown (`profiler-ext
report`, `coverage()`) sums the gaps, the line below it names them, and a note that begins with the
name of a gap says what to do. Common reasons get a note from 5% of the launches' time. This page
lists each reason: what the reports call it, what it means, and what to do."""

IDLE = """# Idle time

Every span of time in which a device ran nothing has a cause. `idle_by_cause()` sums the causes,
`idle_by_line()` shows where the CPU was, and in Perfetto the slices of the row *idle* carry the
cause as their name. The spans add up to the idle time of the step time breakdown, for each step and
device, to the nanosecond.

**How causes are determined.** An idle span ends with a launch. From the beginning of the span until
the call of that launch returned, the device waited for the CPU. The span is cut by what the
launching thread did in that time, its innermost event. Autograd's threads and the thread that runs
the steps take turns, so for a launch of either both count, its own first; any other thread that
launches counts alone. The rest, from the end of the call to the start on the device, is launch
latency. If the call returned before the device became idle, the device did not wait for the CPU. A
span that no launch ends, because the recording ended, gets its cause from the thread that runs the
steps.

**Cause and consequence: synchronisation.** A call such as `.item()` waits until the device has
nothing left to run. Then the device idles while the CPU enqueues new work. In that time the CPU
launches or runs Python, but it would have done so long before if it had not waited. So this idle
time is a consequence of the wait, up to a limit: the total time that the device was busy during the
waits so far, because the CPU would have been that much further ahead. Waits are used up in the
order in which they happened. In a step that is bound by the device, all idle time after an
`.item()` is its consequence. In a step that is bound by launches, where the device was almost done
when the CPU began to wait, almost none is. Such time is *after a synchronisation*, and its line is
that of the call that waited. Inside a compiled graph the thread is at no line of the program: a
`.cpu()` in it is at the line of what the waiting op gave the device before. So is a wait in the
backward, where the thread is at the line of `backward()`: in an op of an autograd node it is at
the line of what the node gave the device before, that of its forward. Time in a data loader, a
compiler or an allocation keeps its name, and counts towards the limit. Calls that free device
memory wait for the device too.

**Measured.** Each cause was made on purpose, reported, and removed (`benchmarks/idle_causes.py`,
H200, torch 2.11), in milliseconds per step. Profiling slows the CPU, so delays of the CPU are
reported too long.

| made on purpose | reported | saved without profiling |
| --- | --- | --- |
| a data loader that takes 10 ms | 10.2 | 10.2 |
| 10 ms of Python after an `.item()` | 11.4 | 10.1 |
| `empty_cache()` in each step | 1.1 | 1.6 |
| four `.item()` in a step bound by the device | 1.3 | 0.6 |
| an `if` on a tensor after each of 12 blocks | 6.8 (saved in recorded steps: 7.9) | 1.6 |
| a rank that comes 10 ms late, with another | 7.4 | 10.0 |

**What it does not say.** Removing a cause saves its time only if nothing else holds the step up. A
wait for another rank inside a NCCL kernel is busy time: see `communication()`. The profiler's own
time is what CUPTI reports about itself, in the segment of CPU time that it mostly covers, and the
end of a recording; what profiling adds to each call is not separated."""

EVIDENCE = """# Evidence

Each attribution names the rule behind it. `by_link()` sums backward time by the rule that matched
it to its forward op, and `by_mechanism()` sums all time by the way its line was found."""

WORDS = """# Words of the tables

The values of the columns that say what ran. Gaps are in [gaps.md](gaps.md), evidence is in
[evidence.md](evidence.md)."""

FORMATS = """# Formats

<!-- sessions: profile_out=cases/llama -->
```console
$ profiler-ext export profile_out -o tables.csv        # or: session.export(PATH)
...
```

A path's suffix names the format; a path without one is a folder for TensorBoard.
Earlier names are listed in [records.md](records.md) for keys, in [tables.md](tables.md) for
columns."""

TABLES = """# Tables

Each table is a method of a session and of several ranks together, takes the filters `step`, `rank`,
`phase` and `scope` where they make sense, and is a pandas frame with nullable dtypes. Eager and
compiled work of one line or module are one row; `scope="compiled"` and `scope="eager"` give the
parts of each, and `launches` has them as a column. The values of the columns `phase`, `kind`,
`scope`, `level` and `cache_state` are in [words.md](words.md), those of `evidence` and
`forward_evidence` in [evidence.md](evidence.md), those of `gap` in [gaps.md](gaps.md), those of
`cause` in [idle.md](idle.md).

In schema 2 of tables (`attrs["schema_version"]`) columns of `findings` have other names than in
schema 1: `what` is `summary`, `at_stake_ns` is `est_saving_ns`, `of_ns` is `total_ns`,
`at_stake_fraction` is `est_saving_fraction`, `stake` is `saving_per`, `sureness` is `confidence`,
`why` is `evidence`, `shared_with` is `overlaps_with`."""

FINDINGS = """# Findings: top recommendations

Rules check each session. Reports begin with what they find, largest time at stake first.
`profiler-ext report --findings` prints up to a hundred findings, `session.recommendations` has the
records and `session.findings()` the table. `--format json` prints all of them for programs
([answers.schema.json](answers.schema.json)). `--fail-above 5%` exits with 4 if a finding has more
than 5% of the step time at stake.

For example, a ConvNeXt-T on an H200 with one block left in float32: `unlike_siblings` predicted
11.7 ms of 81.2 ms, and with all blocks in bfloat16 the step was 11.8 ms shorter.

- **Step time** is the lower median of the recorded steps, because the first one often differs.
- **Time at stake** is what the remedy can save. It is *measured* if it is time in the trace that
  disappears with the problem, *estimated* if it rests on a model of the remedied step, and *upper
  bound* if the remaining time is not known. Where no estimate is possible, none is claimed
  (`unknown`, printed as `?`): such findings come last and count as nothing.
- **The bottleneck counts**: a faster kernel makes a step faster only if the step waits for the
  device. Where the CPU is behind with its launches, the device would only wait longer, so no rule
  about kernels claims such time. Where a device is busy for nine tenths of a step or more, a
  finding claims no more than until the step takes as long as the CPU needs for all other launches.
  What the CPU needs is known where the program ran ahead of the device in steps before the
  recording, and waits for nothing: by its own clock. Else it is taken to be 2.25 times as fast
  without recording, the median of 13 steps that tell (the middle half: 1.9 to 2.7), or faster if
  the session shows that. Where the CPU waits for room in a stream's queue of some 1,000 launches,
  it does not work.
- **Step time without profiling**: profiling slows the CPU, by 1.1 to 2.0 times in our
  measurements, so a device may wait for the CPU only while it is being profiled. The session
  keeps how long each of the last steps before the recording took on the device, with no profiler
  on (`unprofiled_steps_ns`; [steps](steps.md)). With three or more of them, their lower median is
  the step time without profiling. The findings begin with it, the step time while profiling
  follows, and percentages refer to it. If the device is busy all that time, the device is the
  bottleneck. `run` and the callbacks of training libraries leave three such steps by default
  (`--skip 5`, `skip=5`), and so does a schedule with `wait=4` or more. With fewer, waiting for the
  CPU is estimated, and rules about kernels ignore launches that the device waited for in the
  recording.
- **No time is counted twice.** The largest finding counts a launch's time, or idle time, first, and
  a smaller one only what is left; it says which they are (`overlaps_with`) and how much they count
  of its own (`counted by other findings`). `launch_bound`, `uncompiled` and `dtype_conversion` come
  last. So all findings of a step together are no more than the step.
- Findings below {least:.0%} of a step and 20 us, or below a tenth of a second that each process
  spends once, are **not reported**. A rule that could not be applied says why. A session without
  findings says so.

[Measured recommendations](trust/recommendations.md) compares each rule's prediction with the
measured speedup of its remedy, and shows where rules were wrong."""

MEMORY_FINDINGS = """## Memory

The rules below are of a session with a memory record (`profiler-ext run --memory`).
`report --memory` prints what they find under the peak, most bytes first;
`session.memory_recommendations` has the records, and `report --findings --format json` has them
as `memory`. `profiler-ext try --memory` tries those that can be patched in, and prints what was
saved next to what was claimed.

- **Bytes** are by how much the peak falls. The recorded timeline of allocations is followed once
  more, without the blocks that would go or with smaller ones. The peak may be at another moment
  then, so the bytes are the old peak less the new one, never the sum of what goes. What moves the
  peak by less than {least:.0%} is not reported. Bytes of several recommendations do not add up.
- **Time** is how much longer a step takes, below 0 if it is shorter: of recorded launches, on the
  device or on the CPU, whichever sets the pace of the recorded steps. Where it is not known, none
  is claimed (`time ?`): as where the CPU sets the pace and no steps were timed before the
  recording.

[memory](memory.md#what-lowers-the-peak) has how near both are to edited programs."""

RECOMMENDATIONS = """# Measured recommendations

What each [rule](../findings.md) predicted, and what its remedy gained when both steps were timed.
[Findings](../findings.md) explains the rules: what each means and what to try."""

TORCH = """# What differs between torch versions

The package reads and wraps private parts of torch. What only some supported versions of torch do is
listed in one file, `profiler_ext/torch_compat/behaviour.py`, from which this page is generated.
Names that all versions have are declared in `torch_compat/names` and `points.py`; whether a torch
has them is recorded in `tests/fixtures/symbols`, one table a version.

A release does what its number says. A build on its way to a release (`2.13.0a0+nv26.05`,
`2.13.0.dev20260501`, `2.13.0rc2`) may or may not do yet what came with that number, so there a
private name that came with the behaviour, its sign, decides. In every other build the sign checks
the number: where they differ the sign is followed, `profiler-ext doctor` says so, and the session
has the gap [`torch_behaviour`](gaps.md#gap-torch_behaviour).

For a new torch: record its symbol table (`python -m tests.symbols VERSION`), add the version in
`tests/symbols/test_tables.py` and raise the bound in `pyproject.toml`, then run
`tests/test_behaviour.py` on it, which looks at what torch does for each row below. Where torch does
something new, add a row with a sign and a proof, and ask the flag where it matters. A row that no
longer separates supported versions fails there too: remove it, with the branch that nothing
takes."""
