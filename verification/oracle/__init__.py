"""The oracle: random models whose constants tell which lines a generated kernel computes.

``python -m verification.oracle --device cpu --kernels 500`` (no C++ is compiled), ``--device cuda``
on a GPU, ``--device triton`` for Triton code without one (where triton is installed); ``--ablate
50`` adds the second oracle, which removes lines that bear no constant; ``--jobs 8`` shares the
seeds among processes.

Known gaps, where torch's own record has no better line:

- the backward of a branch (``torch.cond``) whose body is not the branch op by op has the line of
  the call; here a branch's gradient is not asked for (``tests/capture/test_kernel_lines.py`` does);
- the derivative of a ``score_mod`` of several lines (FlexAttention): its nodes have no line, so the
  tables give them a gap (``no_source_line``);
- equal values that torch merges (two ``torch.zeros`` of one size): the first one's line has both;
- a line removed between two kernels whose code is equal: the second oracle cannot tell which went.
"""
