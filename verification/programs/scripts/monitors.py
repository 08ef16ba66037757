"""Programs with tools of their own: of sys.monitoring, a profiler, a tracer."""

import cProfile
import pstats
import sys

from stepping import counted, train


class Tool:
    """Another tool of sys.monitoring: it counts lines and calls of this file."""

    def __init__(self, number):
        self.seen, self.number = {}, number
        self.monitoring = monitoring = sys.monitoring
        monitoring.use_tool_id(number, f"own {number}")
        monitoring.register_callback(number, monitoring.events.LINE, self.line)
        monitoring.register_callback(number, monitoring.events.PY_START, self.start)
        monitoring.set_events(number, monitoring.events.LINE | monitoring.events.PY_START)

    def line(self, code, line):
        if code is not counted.__code__:
            return self.monitoring.DISABLE
        self.seen[line] = self.seen.get(line, 0) + 1

    def start(self, code, offset):
        if code is not counted.__code__:
            return self.monitoring.DISABLE
        self.seen["calls"] = self.seen.get("calls", 0) + 1

    def leave(self):
        self.monitoring.set_events(self.number, 0)
        for event in (self.monitoring.events.LINE, self.monitoring.events.PY_START):
            self.monitoring.register_callback(self.number, event, None)
        self.monitoring.free_tool_id(self.number)


def next_to():
    """Tools on the ids of coverage and of debuggers, from before to after the recording."""
    tools = [Tool(0), Tool(1)]
    train(counted)
    for tool in tools:
        tool.leave()
    print([sorted(tool.seen.items(), key=str) for tool in tools])


def within():
    """Tools that begin and end within a step, on each id that has an owner; and start anew."""

    def use():
        for number in (0, 1, 2, 5):
            tool = Tool(number)
            counted()
            sys.monitoring.restart_events()
            counted()
            tool.leave()
            print(sorted(tool.seen.items(), key=str))

    train(use)


def taken():
    """All ids are the program's."""
    tools = [Tool(number) for number in range(6)]
    train(counted)
    print([tool.seen["calls"] for tool in tools])


def restarted():
    def again():
        for _ in range(50):
            sys.monitoring.restart_events()
            counted()

    train(again)


def profiled():
    """cProfile is a tool of sys.monitoring itself, from Python 3.12 on."""

    def use():
        with cProfile.Profile() as profile:
            counted()
            counted()
        found = pstats.Stats(profile).stats
        print([calls for (_, _, name), (calls, *_) in found.items() if name == "counted"])

    train(use)


def traced():
    """A tracer and a profile function of the step's own."""

    def use():
        seen, calls = [], []

        def tracer(frame, event, arg):
            if frame.f_code is counted.__code__:
                seen.append((event, frame.f_lineno))
                return tracer

        sys.settrace(tracer)
        counted()
        sys.settrace(None)
        sys.setprofile(lambda frame, event, arg: calls.append((event, frame.f_code.co_name)))
        counted()
        sys.setprofile(None)
        print(seen, calls[:2])

    train(use)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print([sys.monitoring.get_tool(number) for number in range(6)])
