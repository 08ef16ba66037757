"""The lines and instructions of random models' kernels: which of them are on a node.

``python -m verification.inside --kernels 5000 --assemble 300`` generates kernels as the oracle does
(no GPU is needed, and triton is), counts their lines by part, compares the nodes of each kernel
with those of its call site, and compiles a sample for sm_90, of which it counts the instructions.
"""
