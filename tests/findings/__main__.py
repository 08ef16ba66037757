"""Renews what the rules say of the recorded sessions: read what changes in it.

python -m tests.findings
"""

from __future__ import annotations

from tests.findings.reported import REPORTED, every

if __name__ == "__main__":
    REPORTED.write_text("".join(f"== {name}\n{make()}" for name, make in every().items()))
