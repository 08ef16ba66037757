"""Whether what is said of the inside of kernels is so: of their lines, and of what each takes.

``lines`` generates kernels as the oracle does (no GPU is needed, and triton is), counts their lines
by part, compares the nodes of each kernel with those of its call site, and compiles a sample for
sm_90, of which it counts the instructions. The other questions are asked on a GPU.
"""
