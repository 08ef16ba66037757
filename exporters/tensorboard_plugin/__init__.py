"""The project's own TensorBoard view: the file that it reads, its routes, its page.

Nothing here but :mod:`profiler_ext.exporters.tensorboard_plugin.plugin` imports TensorBoard, and
only TensorBoard imports that.
"""
