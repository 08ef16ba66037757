-- Tables and views for traces that profiler-ext wrote; see docs/perfetto.md.
-- Times are integer nanoseconds, exact: every share of every launch is counted, not the largest.

-- What shares point at: an FX node, an eager ATen op, or a gap.
create or replace perfetto table place as
select
  ifnull(extract_arg(arg_set_id, 'debug.rank'), 0) as rank,
  extract_arg(arg_set_id, 'debug.place') as place,
  extract_arg(arg_set_id, 'debug.node') as node,
  extract_arg(arg_set_id, 'debug.aten_op') as aten_op,
  extract_arg(arg_set_id, 'debug.phase') as phase,
  extract_arg(arg_set_id, 'debug.forward_node') as forward_node,
  extract_arg(arg_set_id, 'debug.file') as file,
  extract_arg(arg_set_id, 'debug.line') as line,
  extract_arg(arg_set_id, 'debug.function') as function,
  extract_arg(arg_set_id, 'debug.code') as code,
  extract_arg(arg_set_id, 'debug.user_file') as user_file,
  extract_arg(arg_set_id, 'debug.user_line') as user_line,
  extract_arg(arg_set_id, 'debug.module') as module,
  extract_arg(arg_set_id, 'debug.module_class') as module_class,
  extract_arg(arg_set_id, 'debug.gap') as gap
from slice
where category = 'place';

-- One row for each launch; `launch` is the id of its slice.
create or replace perfetto table launch as
select
  slice.id as launch,
  slice.arg_set_id,
  ifnull(extract_arg(slice.arg_set_id, 'debug.rank'), 0) as rank,
  extract_arg(slice.arg_set_id, 'debug.step') as step,
  slice.name,
  ifnull(extract_arg(slice.arg_set_id, 'debug.kernel'), slice.name) as kernel,
  slice.category as kind,
  track.name as track,
  slice.ts as start_ns,
  slice.dur as duration_ns,
  extract_arg(slice.arg_set_id, 'debug.phase') as phase,
  extract_arg(slice.arg_set_id, 'debug.level') as level,
  extract_arg(slice.arg_set_id, 'debug.evidence') as evidence,
  extract_arg(slice.arg_set_id, 'debug.gap') as gap,
  extract_arg(slice.arg_set_id, 'debug.graph') as graph,
  extract_arg(slice.arg_set_id, 'debug.compile_id') as compile_id,
  extract_arg(slice.arg_set_id, 'debug.call_site') as call_site,
  extract_arg(slice.arg_set_id, 'debug.est_gb_per_s') as est_gb_per_s,
  extract_arg(slice.arg_set_id, 'debug.est_tflop_per_s') as est_tflop_per_s,
  extract_arg(slice.arg_set_id, 'debug.unit') as unit,
  extract_arg(slice.arg_set_id, 'debug.bound') as bound,
  extract_arg(slice.arg_set_id, 'debug.roofline_ns') as roofline_ns,
  extract_arg(slice.arg_set_id, 'debug.could_save_ns') as could_save_ns
from slice
join track on track.id = slice.track_id
where
  slice.category in (
    'triton', 'triton_template', 'user_triton', 'cpp', 'extern', 'eager', 'communication',
    'memcpy', 'memset'
  )
  and extract_arg(slice.arg_set_id, 'debug.level') is not null;

-- One row for each launch and place: the launch's time, parted exactly.
create or replace perfetto table launch_share as
select
  launch.launch,
  launch.rank,
  launch.step,
  launch.kernel,
  launch.name,
  launch.kind,
  launch.duration_ns as launch_ns,
  args.int_value as duration_ns,
  place.place,
  place.node,
  place.aten_op,
  place.phase,
  place.file,
  place.line,
  place.code,
  place.module,
  place.module_class,
  place.gap
from launch
join args on args.arg_set_id = launch.arg_set_id and args.key glob 'debug.shares_ns.*'
join place
  on place.rank = launch.rank
  and place.place = cast(regexp_extract(args.key, '#([0-9]+)$') as int);

-- Sums the profiled steps by three keys; a launch counts once for each row that it is part of.
create or replace perfetto macro time_by(keyed TableOrSubquery)
returns TableOrSubquery as
(
  select
    key_1,
    key_2,
    key_3,
    max(about) as about,
    count() as launches,
    sum(duration_ns) as duration_ns,
    sum(forward) as forward,
    sum(backward) as backward,
    sum(recompute) as recompute,
    sum(gradient_accumulation) as gradient_accumulation,
    sum(optimizer) as optimizer,
    sum(other) as other,
    sum(launch_ns) as inclusive_ns,
    cast(sum(duration_ns) as double)
      / (select count(distinct name) from slice where category = 'step') as per_step_ns
  from (
    select
      key_1,
      key_2,
      key_3,
      max(about) as about,
      max(launch_ns) as launch_ns,
      sum(duration_ns) as duration_ns,
      sum(iif(phase = 'forward', duration_ns, 0)) as forward,
      sum(iif(phase = 'backward', duration_ns, 0)) as backward,
      sum(iif(phase = 'recompute', duration_ns, 0)) as recompute,
      sum(iif(phase = 'gradient_accumulation', duration_ns, 0)) as gradient_accumulation,
      sum(iif(phase = 'optimizer', duration_ns, 0)) as optimizer,
      sum(iif(phase = 'other', duration_ns, 0)) as other
    from $keyed
    where step is not null
    group by key_1, key_2, key_3, launch
  )
  group by key_1, key_2, key_3
);

-- Innermost lines of the model; `gap` says why a row has no line.
create or replace perfetto view time_by_line as
select
  key_1 as file, key_2 as line, about as code, key_3 as gap, launches, duration_ns, forward,
  backward, recompute, gradient_accumulation, optimizer, other, inclusive_ns, per_step_ns
from time_by!((
  select
    file as key_1, line as key_2, iif(file is null, gap, null) as key_3, code as about,
    launch, launch_ns, duration_ns, phase, step
  from launch_share
))
order by duration_ns desc;

-- A module's time excludes its children's; `(model)` is the model itself.
create or replace perfetto view time_by_module as
select
  key_1 as module, about as module_class, key_3 as gap, launches, duration_ns, forward, backward,
  recompute, gradient_accumulation, optimizer, other, inclusive_ns, per_step_ns
from time_by!((
  select
    module as key_1, null as key_2, iif(module is null, gap, null) as key_3,
    module_class as about, launch, launch_ns, duration_ns, phase, step
  from launch_share
))
order by duration_ns desc;

create or replace perfetto view time_by_phase as
select key_1 as phase, launches, duration_ns, inclusive_ns, per_step_ns
from time_by!((
  select
    phase as key_1, null as key_2, null as key_3, null as about,
    launch, launch_ns, duration_ns, phase, step
  from launch_share
))
order by duration_ns desc;

-- Inductor's kernels by their name, others by the event's; `name` is the device's own.
create or replace perfetto view time_by_kernel as
select
  key_1 as kernel, key_2 as name, key_3 as kind, launches, duration_ns, forward, backward,
  recompute, gradient_accumulation, optimizer, other, inclusive_ns, per_step_ns
from time_by!((
  select
    kernel as key_1, name as key_2, kind as key_3, null as about,
    launch, launch_ns, duration_ns, phase, step
  from launch_share
))
order by duration_ns desc;

-- Why devices ran nothing, by cause and line; the pieces of a step and device add up to its idle time.
create or replace perfetto view idle_by_cause as
select
  extract_arg(arg_set_id, 'debug.cause') as cause,
  extract_arg(arg_set_id, 'debug.source_paths[0]') as line,
  count() as pieces,
  sum(dur) as duration_ns
from slice
where category = 'idle'
group by 1, 2
order by duration_ns desc;

-- The rooflines of lines, modules (without their children) and kernels over the profiled steps.
create or replace perfetto table roofline as
select
  ifnull(extract_arg(arg_set_id, 'debug.rank'), 0) as rank,
  extract_arg(arg_set_id, 'debug.of') as of,
  extract_arg(arg_set_id, 'debug.file') as file,
  extract_arg(arg_set_id, 'debug.line') as line,
  extract_arg(arg_set_id, 'debug.module') as module,
  extract_arg(arg_set_id, 'debug.kernel') as kernel,
  extract_arg(arg_set_id, 'debug.name') as name,
  extract_arg(arg_set_id, 'debug.kind') as kind,
  extract_arg(arg_set_id, 'debug.est_bytes') as est_bytes,
  extract_arg(arg_set_id, 'debug.est_flops') as est_flops,
  extract_arg(arg_set_id, 'debug.est_gb_per_s') as est_gb_per_s,
  extract_arg(arg_set_id, 'debug.est_tflop_per_s') as est_tflop_per_s,
  extract_arg(arg_set_id, 'debug.est_attainable_tflop_per_s') as est_attainable_tflop_per_s,
  extract_arg(arg_set_id, 'debug.est_peak_fraction') as est_peak_fraction,
  extract_arg(arg_set_id, 'debug.unit') as unit,
  extract_arg(arg_set_id, 'debug.bound') as bound,
  extract_arg(arg_set_id, 'debug.roofline_ns') as roofline_ns,
  extract_arg(arg_set_id, 'debug.could_save_ns') as could_save_ns
from slice
where category = 'roofline';
