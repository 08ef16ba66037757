"""Owns a rank's own table among those of a job: with its rank and host."""

from __future__ import annotations

from profiler_ext.cluster.records import RankFacts
from profiler_ext.exporters.tables import DataFrame
from profiler_ext.exporters.tables.arrays import TEXT, INT, frame, repeated


def with_rank(table: DataFrame, facts: RankFacts) -> DataFrame:
    """Return a rank's own table with its rank and host.

    Args:
        table: the table.
        facts: of the rank.
    """
    columns = [name for name in table.columns if name != "rank"]
    own = {
        "rank": repeated(facts.rank, len(table), INT),
        "host": repeated(facts.host or None, len(table), TEXT),
    }
    return frame(own | {name: table[name].array for name in columns if name != "host"})
