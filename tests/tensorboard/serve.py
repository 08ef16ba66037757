"""Serves a log folder with TensorBoard's own program until standard input ends."""

import sys


def main(log_dir: str) -> None:
    from tensorboard import default, program
    from torch_tb_profiler.plugin import TorchProfilerPlugin

    from profiler_ext.exporters.tensorboard_plugin.plugin import AttributionPlugin

    plugins = [*default.get_static_plugins(), TorchProfilerPlugin, AttributionPlugin]
    server = program.TensorBoard(plugins=plugins)
    options = ["--logdir", log_dir, "--host", "127.0.0.1", "--port", "0", "--load_fast", "false"]
    server.configure(argv=["tensorboard", *options])
    print(server.launch(), flush=True)
    sys.stdin.read()


# The stock plugin starts processes, which import this file again.
if __name__ == "__main__":
    main(sys.argv[1])
