"""The blocks of the README and of the book in ``docs``: each is run, or says why it cannot be.

Sybil finds them (of the tools that do so the one whose parts can be taken singly: its lexers of
Markdown and its documents, with blocks of our own kinds and reasons in comments; it is maintained
since 2017). ``python -m tests.book`` writes what commands print now into the pages.

- ``console``: lines that begin with ``$`` are run in this process, what follows is their output.
  ``...`` alone on a line stands for any lines. ``| head -N`` and ``| tail -N`` cut, ``echo $?``
  tells the status.
- ``python`` is run; a page's blocks share their names. ``json`` and ``yaml`` are parsed, ``sql`` is
  run by a real trace processor in ``tests/trace_processor``.
- ``text`` is no code.
- ``<!-- sessions: profile_out=cases/cnn both=cases/ddp.rank_0+cases/ddp.rank_1 -->`` names what
  stands in the working folder from there on: recordings of ``tests/fixtures/h200``.
- ``<!-- not run: REASON -->`` before a block: it is parsed only, commands by the real parser.
"""
