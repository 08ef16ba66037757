"""TensorBoard: the exported log folder, and the view inside TensorBoard.

Only :mod:`profiler_ext.exporters.tensorboard_plugin.plugin` imports TensorBoard, and only
TensorBoard imports it.
"""
