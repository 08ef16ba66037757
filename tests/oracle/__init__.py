"""The oracle: random models whose constants tell which lines a generated kernel computes.

``python -m tests.oracle --device cpu --kernels 500`` (no C++ is compiled), ``--device cuda`` on a
GPU; ``--ablate 50`` adds the second oracle, which removes lines that bear no constant.

Known gaps, where torch's own record has no better line:

- a gradient taken inside the graph (``torch.func.grad``): torch gives its nodes the line that takes
  it, so the tables give them a gap (``traced_gradient_not_linked``);
- equal values that torch merges (two ``torch.zeros`` of one size): the first one's line has both;
- a line removed between two kernels whose code is equal: the second oracle cannot tell which went.
"""
