"""The oracle of eager lines: random programs in which the shapes of a tensor tell its line.

Every line that works has two numbers of its own, both prime: one for the results that it hands
on, and one that its tensors have meanwhile. Values come in as ``(made, 1)`` and are spread over
``(made, meanwhile)`` at once, so each op, forward or backward, has a number of its own line
among its recorded input shapes, and no line's but that one. Those numbers are compared with the
line that the session gives. Programs are written to files and run as their users' would be.

The sum that the engine makes of two gradients of one value has only the value's number; its line
must be one that used the value, and its evidence must say that it is a sum.
"""
