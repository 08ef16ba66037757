import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from training import Model, train

BUCKET_BYTES = 4096
dist._DEFAULT_FIRST_BUCKET_BYTES = BUCKET_BYTES  # as small as the others
store = dist.FileStore(os.environ["FAULTS_DIGEST"] + ".store", 1)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
torch.manual_seed(0)
model = Model(depth=4)
compiled = torch.compile(DistributedDataParallel(model, bucket_cap_mb=BUCKET_BYTES / 2**20))


def step(x):
    loss = compiled(x).square().mean()
    loss.backward()
    return loss


train(step, list(model.parameters()))
dist.destroy_process_group()
