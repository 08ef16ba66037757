"""The list of all cases that were made by hand."""

from __future__ import annotations

from verification.hostile import clocks, fields, files, records, sizes, syntax

BY_HAND = files.CASES | syntax.CASES | records.CASES | clocks.CASES | sizes.CASES
CASES = BY_HAND | fields.CASES
