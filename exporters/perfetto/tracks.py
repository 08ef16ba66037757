"""Owns the tracks: their numbers, names, parents and order, and how slices are drawn on them."""

from __future__ import annotations

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from profiler_ext.exporters.perfetto.lanes import assign_lanes
from profiler_ext.exporters.perfetto.packets import PacketWriter, Slices
from profiler_ext.records import Settings

_PROFILER_RANK = 1_000_000


class Tracks:
    """Describes tracks and draws slices on them.

    Where runs are compared, names of groups begin with the side, and processes are groups: two runs
    can have processes of one number, which the viewer would take for one.
    """

    def __init__(self, writer: PacketWriter, side: str = "") -> None:
        """Describe the tracks of one rank of a run.

        Args:
            writer: encodes them.
            side: the run's, where several are compared.
        """
        self._writer = writer
        self._side = side
        self._processes: dict[int, int] = {}
        self._uuid = writer.first_id
        self._groups: dict[str, int] = {}

    def track(self, name: str, parent: int | None = None, rank: int = 0) -> int:
        """Describe a track, or a group when others name it as their parent.

        Args:
            name: what the viewer shows.
            parent: uuid of its group.
            rank: its place among its siblings, smallest first.

        Returns:
            Its uuid.
        """
        self._placed(name, parent, rank)
        return self._uuid

    def group(self, name: str, rank: int) -> int:
        """Describe a group when it is first asked for.

        Args:
            name: what the viewer shows; two groups of one name are one.
            rank: its place among the groups, smallest first.

        Returns:
            Its uuid.
        """
        if name not in self._groups:
            self._groups[name] = self.track(name, rank=rank)
        return self._groups[name]

    def process(self, pid: int, name: str, rank: int) -> int:
        """Describe a process.

        Args:
            pid: its id.
            name: what the viewer shows.
            rank: its place among the processes, smallest first.

        Returns:
            Its uuid.
        """
        if self._side:
            self._processes[pid] = self.track(name, rank=rank)
            return self._processes[pid]
        descriptor = self._described()
        descriptor.process.pid = pid
        descriptor.process.process_name = name.encode("utf-8", "replace").decode()
        descriptor.sibling_order_rank = rank
        return self._uuid

    def thread(self, pid: int, tid: int, name: str) -> int:
        """Describe a thread of a process.

        Args:
            pid: the process.
            tid: the thread.
            name: what the viewer shows.

        Returns:
            Its uuid.
        """
        if self._side:
            return self.track(name, self._processes[pid])
        descriptor = self._described()
        descriptor.thread.pid = pid
        descriptor.thread.tid = tid
        descriptor.thread.thread_name = name.encode("utf-8", "replace").decode()
        return self._uuid

    def counter(self, name: str, unit: str, parent: int, rank: int) -> int:
        """Describe a counter.

        Args:
            name: what the viewer shows.
            unit: the unit of its values.
            parent: uuid of its group.
            rank: its place in the group.

        Returns:
            Its uuid.
        """
        descriptor = self._placed(name, parent, rank)
        descriptor.counter.unit_name = unit
        return self._uuid

    def draw(
        self,
        name: str,
        parent: int | None,
        rank: int,
        slices: Slices,
        nesting: bool = False,
    ) -> None:
        """Draw slices on a track; those that do not fit go to further tracks of the same name.

        Args:
            name: the track's name; the viewer shows siblings of one name as one row.
            parent: uuid of the group, ``None`` for a track of its own.
            rank: the track's place in the group.
            slices: what to draw.
            nesting: whether a slice may lie within another.
        """
        for lane in assign_lanes(slices.start_ns, slices.end_ns, nesting):
            self._writer.slices(self.track(name, parent, rank), slices, lane)

    def draw_calls(self, thread: int, name: str, slices: Slices) -> None:
        """Draw slices that lie within each other, as the calls of a thread do.

        Args:
            thread: uuid of the thread.
            name: its name, for the further tracks of calls which cross others.
            slices: what to draw.
        """
        for number, lane in enumerate(assign_lanes(slices.start_ns, slices.end_ns, nesting=True)):
            track = self.track(f"{name} (crossing)", thread) if number else thread
            self._writer.slices(track, slices, lane)

    def _placed(self, name: str, parent: int | None, rank: int) -> pb.TrackDescriptor:
        descriptor = self._described()
        named = f"{self._side}: {name}" if self._side and parent is None else name
        descriptor.name = named.encode("utf-8", "replace").decode()
        descriptor.child_ordering = pb.TrackDescriptor.EXPLICIT
        descriptor.sibling_order_rank = rank
        if parent is not None:
            descriptor.parent_uuid = parent
        return descriptor

    def _described(self) -> pb.TrackDescriptor:
        self._uuid += 1
        descriptor = self._writer.descriptor()
        descriptor.uuid = self._uuid
        return descriptor


def profiler_group(tracks: Tracks, settings: Settings) -> int:
    """Return the last group: of what belongs to the profiler, not to the program.

    Args:
        tracks: makes tracks.
        settings: has the rank.
    """
    return tracks.group(with_rank("profiler", settings), _PROFILER_RANK)


def with_rank(name: str, settings: Settings) -> str:
    """Return a group's name, which tells the ranks apart where there are several.

    Args:
        name: the group's name.
        settings: has the rank, and how many there are.
    """
    return name if settings.world_size == 1 else f"rank {settings.rank}: {name}"
