"""Owns what tells one object from another where a program is at its work.

``id`` is an event for audit hooks. The newest filelock, which torch's compiler imports, has one in
Python from 3.12 on: each call of ``id`` is then one of the hook, of half a microsecond, and of 7 to
9 us amid a step, when no cache has it any more. Nobody is asked for an object's own hash.

Source: ``Python/bltinmodule.c``, ``builtin_id``; ``filelock/_api.py``, ``_register_fork_hooks``.
"""

from __future__ import annotations

identity = object.__hash__
"""A number that no other object has while this one lives, however its class compares or hashes."""
