"""What a person wrote of the pages that ``tests.reference`` makes: how each begins."""

GAPS = """# Gaps

What could not be attributed to a line or an op is a row of its own in every table, with the reason
as `gap`: nothing is dropped, and nothing is guessed. The ledger (`profiler-ext report`,
`coverage()`) adds them up, the line below it names them, and a note that begins with the name
says what to do; reasons that are usual have a note from 5% of the launches' time on. This page has
each reason: the words of the reports, what it says of the launches, and what to do about it."""

IDLE = """# Idle time

Each piece of the time in which a device ran nothing has a cause, in every table and view of idle
time: `idle_by_cause()` sums them, `idle_by_line()` says where the CPU was, and in Perfetto the
slices of the row *idle* are called so. The pieces add up to the ledger's idle time, for each step
and device, to the nanosecond.

**How it is told.** An idle span ends with a launch. From the beginning of the span until that
launch's call returned the device waited for the CPU: the span is cut by what the thread that
enqueued it did in that time, its innermost event. Autograd's threads and the thread that makes
the steps take turns, so for a launch of either both count, its own first; any other thread that
launches goes its own way. What is left, from the end of the call to the start on the device, is
launch latency. If the call was over before the device became idle, the CPU is not what it waited
for. What nothing ended, as the recording did, is told by the thread that makes the steps.

**What is cause and what is consequence: synchronisation.** A call such as `.item()` waits until
the device has nothing left to run. Then the device idles while the CPU enqueues anew, and what
the CPU does in that time is launching, or Python; but it would have been done long before, had
the CPU not waited. So that idle time is the wait's consequence, with a limit: as long in all as
the device was busy during the waits so far, since that much further ahead the CPU would have
been; and what a wait cost is used up in the order in which it was lost. In a step that is bound
by the device all that follows an `.item()` is its consequence; in one that is bound by launches,
where the device was as good as done when the CPU began to wait, next to nothing is. Such time is
*after a synchronisation*, and its line is that of the call that waited. A compiled graph has no
line of the program's where its thread stands: a `.cpu()` in it is at the line of what the op that
waits gave the device before. Time in a data loader, a compiler or an allocation keeps its name, and
counts for the limit. Calls that free memory of a device wait for it too.

**Tried.** Each cause made on purpose, told, and taken away (`benchmarks/idle_causes.py`, H200,
torch 2.11), in milliseconds a step. A recorded CPU is slower, so what it is behind with is told
longer.

| made on purpose | told | saved without a recording |
| --- | --- | --- |
| a data loader that takes 10 ms | 10.2 | 10.2 |
| 10 ms of Python after an `.item()` | 11.4 | 10.1 |
| `empty_cache()` in each step | 1.1 | 1.6 |
| four `.item()` in a step bound by the device | 1.3 | 0.6 |
| an `if` on a tensor after each of 12 blocks | 6.8 (saved in recorded steps: 7.9) | 1.6 |
| a rank that comes 10 ms late, with another | 7.4 | 10.0 |

**What it does not say.** That a cause is gone saves its time only if nothing else holds the step
up. A wait for another rank inside a NCCL kernel is busy time: see `communication()`. The
profiler's own time is what CUPTI reports of itself, in the segment of the CPU's time that it
covers most of, and the end of a recording; what it adds to each call is not told apart."""

EVIDENCE = """# Evidence

Each attribution names the rule that it rests on. `by_link()` sums backward time by the rule that
led it to its forward op, and `by_mechanism()` all time by the way by which its line was found."""

WORDS = """# Words of the tables

The values of the columns that say what ran. Gaps are in [gaps.md](gaps.md), evidence is in
[evidence.md](evidence.md)."""

FORMATS = """# Formats

<!-- sessions: profile_out=cases/llama -->
```console
$ profiler-ext export profile_out --to csv        # or: session.export(PATH)
...
```

A path's suffix names the format; a path without one is a folder for TensorBoard.
Names that were other ones in earlier files: of keys in [records.md](records.md), of columns in
[tables.md](tables.md)."""

TABLES = """# Tables

Each is a method of a session and of several ranks together, takes the filters `step`, `rank`,
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

FINDINGS = """# Findings: what to do first

Rules judge a session, and what they find is the first that the reports show, what has most at stake
first: `profiler-ext report --findings` prints it, up to a hundred, `session.found` has the records
and `session.findings()` the table. `--format json` is all of it for programs, with a schema that
has a number ([answers.schema.json](answers.schema.json)); `--fail-above 5%` ends with 4 where a
finding has more than that part of a step at stake.

- **A step** is the usual one: the lower median of the recorded steps, as a first one is often
  unlike the others.
- **At stake** is what the remedy can save. It is *measured* where it is time of the trace that goes
  with the flaw, *estimated* where it rests on a model of the remedied step, and *upper bound*
  where what remains afterwards is not known. Where nobody can tell it is not claimed (`unknown`,
  a `?`): such a finding stands last and counts for nothing.
- **Who sets the pace**: a kernel that gets quicker makes a step quicker only where the step waits
  for the device. Where the CPU is behind with its launches, the device's wait gets longer and
  nothing else, so such time is at stake for no rule about kernels.
- **In training, and not as recorded**: a recording slows the CPU, by 1.1 to 2.0 times in what was
  measured, so a device may wait for the CPU in the recording alone. How long each of the last
  steps before it took on the device, in which no profiler was on, is kept with the session
  (`unprofiled_steps_ns`; [steps](steps.md)). Of three and more the lower median is what a
  step takes in training. It heads the findings, with the recorded step after it, and parts are
  parts of it; where the device is busy all that while, it sets the pace of all. `run` and the
  callbacks of training libraries leave three such steps by default, as `--skip 5` and `skip=5` do,
  and a schedule does from `wait=4` on. A session of fewer, or of before they were kept, has no such
  time: what waits for the CPU is estimated then, and rules about kernels say nothing of launches
  that the device waited for in the recording.
- Findings that count the same time **say so** (`overlaps_with`): their times are not to be added.
- Below {least:.0%} of a step and below 20 us, and below a tenth of a second of what each process
  spends once, **nothing is said**; what a rule lacks is said where
  a rule could not be judged. A session without a finding says that it has none.

How each rule's prediction compares with the measured speedup of its remedy, and where rules were
wrong, is in [measured recommendations](trust/recommendations.md)."""

RECOMMENDATIONS = """# Measured recommendations

What each [rule](../findings.md) predicted, and what its remedy won when both steps were timed. The
rules themselves, with what each means and what to try, are in [findings](../findings.md)."""

TORCH = """# What differs between torch versions

The package reads and wraps private parts of torch. What torch does in some of the supported
versions only stands in one file, `profiler_ext/torch_compat/behaviour.py`, and this page is made of
it. Names that all versions have are declared in `torch_compat/names` and `points.py`; whether a
torch has them is recorded in `tests/fixtures/symbols`, one table a version.

A release does what its number says. A build on its way to a release (`2.13.0a0+nv26.05`,
`2.13.0.dev20260501`, `2.13.0rc2`) may or may not do yet what came with that number, so there a
private name that came with the behaviour, its sign, decides. In every other build the sign checks
the number: where they differ the sign is followed, `profiler-ext doctor` says so, and the session
has the gap [`torch_behaviour`](gaps.md#gap-torch_behaviour).

For a new torch: record its symbol table (`python -m tests.symbols VERSION`), add the version in
`tests/symbols/test_tables.py` and raise the bound in `pyproject.toml`, then run
`tests/test_behaviour.py` on it, which looks at what torch does for each row below. Where torch does
something new, add a row with a sign and a proof, and ask the flag where it matters. A row that no
longer tells supported versions apart fails there too: it goes, with the branch nobody takes."""
