"""The oracle of graph nodes: what runs eagerly tells where each node of a graph comes from.

A model runs twice: eagerly, where each ATen op is seen as it runs (after Inductor's decompositions)
with the line and the module that the program stands in, in backward those where autograd's node
was made; and compiled, where capture claims a line and a module for each node of the forward and
the backward graph. Of each op on tensors of given sizes and types the claimed places must be among
those where it ran, each as often as it ran there. Nothing that attribution rests on is used: no
FX meta data, no number of autograd's, no pattern.

Compiled code is not run here: its graph is, as it was before Inductor, so that a program that reads
numbers goes the same way.

Not judged, and counted apart: an op that a graph has more often than the eager run (a view that
functionalization makes again, what torch decomposes before autograd, what a pattern makes), what
sums the gradients of parameters and of what a graph is given (no op of it made them),
constants, and what one of several graphs differentiates though no gradient comes to it: the graph
computes with zeros there, and the eager run computes nothing.
"""
