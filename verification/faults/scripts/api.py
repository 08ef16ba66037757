"""The script profiles itself: no failure of ours reaches its loop, and what is lost is said."""

import os
import sys

import torch
from training import Model, train

import profiler_ext
from profiler_ext.errors import UsageError

torch.manual_seed(0)
model = Model()
compiled = torch.compile(model)


def step(x):
    loss = compiled(x).square().mean()
    loss.backward()
    return loss


schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
with profiler_ext.profile(schedule=schedule) as prof:
    train(step, list(model.parameters()), end_step=prof.step)

try:
    prof.session.save(os.environ["FAULTS_OUT"])
except UsageError:
    print("there is no session, and nothing says why", file=sys.stderr)
except Exception as error:
    print(f"profiler-ext: there is no session: {error!r}", file=sys.stderr)
