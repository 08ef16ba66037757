"""What programs do in the handler of a trace, of torch's profiler or ours in its place."""

import os
import sys

from drop_in import EACH_SECOND, profile, steps
from training import digest, train


def raises():
    """It is torch's that goes on with no step after it: its process would end in a crash."""

    def fails(_):
        raise ValueError("in the handler")

    train(2)
    with profile(on_trace_ready=fails):
        train(2)


def exits():
    with profile(on_trace_ready=lambda _: sys.exit(4)):
        train(2)


def leaves():
    with profile(schedule=EACH_SECOND, on_trace_ready=lambda _: os._exit(5)) as prof:
        steps(prof, 6)


def trains():
    with profile(schedule=EACH_SECOND, on_trace_ready=lambda _: train(1, "handler")) as prof:
        steps(prof, 6)


def exports():
    def exports(prof):
        prof.export_chrome_trace("own.json")
        print(os.path.getsize("own.json") > 0, prof.step_num, len(prof.key_averages()) > 0)
        print(sum(event.name == "aten::mm" for event in prof.events()))

    with profile(schedule=EACH_SECOND, on_trace_ready=exports) as prof:
        steps(prof, 6)


def profiles():
    """Another one begins where one ended."""

    def profiles(_):
        with profile():
            train(1, "handler")

    with profile(on_trace_ready=profiles):
        train(2)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print(digest())
