"""PyTorch's side of step_bench.py: per case, the end of a program that begins with a model
(`torch_models.MODELS`).

Each program gets `model`, `x`, `labels`, `precision` and `steps`. It prints the wall and CPU
seconds of its steps after the warm-up, and its peak resident memory in bytes. Programs of several
processes read rank and rendezvous address from the environment and use PyTorch's own APIs:

- DistributedDataParallel;
- fully_shard of every block and of the whole model;
- DTensor's tensor parallelism: columns, then rows; embedding and head split along the vocabulary,
  with `loss_parallel`, which gathers no logits;
- a pipeline of two stages under 1F1B with a micro-batch of one sample.
"""

# Runs before the model's step is made: `forward_backward` runs one and leaves gradients.
ONE = r"""
def loss_of(logits, labels):
    return F.cross_entropy(logits.float().flatten(0, -2), labels.flatten())

def forward_backward():
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        logits = model(x)
    loss_of(logits, labels).backward()
"""

# Model and loss; the first steps compile.
COMPILED = ONE + r"""
warm = 3

@torch.compile
def loss_of_all(x, labels):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        logits = model(x)
    return loss_of(logits, labels)

def forward_backward():
    loss_of_all(x, labels).backward()
"""

# Micro-batches of a sample, whose gradients are summed.
ACCUMULATED = ONE + r"""
def forward_backward():
    for inputs, targets in zip(x.split(1), labels.split(1)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            logits = model(inputs)
        (loss_of(logits, targets) / len(x)).backward()
"""

SEVERAL = r"""
import os
import torch.distributed as dist
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
"""

# Data axes: each rank has its share of the samples.
SHARE = r"""
x, labels = (t.chunk(ranks)[rank].contiguous() for t in (x, labels))
"""

DP = SEVERAL + SHARE + r"""
model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
""" + ONE

FSDP = SEVERAL + SHARE + r"""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
mesh = init_device_mesh("cpu", (ranks,))
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
""" + ONE

TP = SEVERAL + r"""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
mesh = init_device_mesh("cpu", (ranks,))
for block in model.blocks:
    parallelize_module(block, mesh, {**{name: ColwiseParallel() for name in COLUMNS},
                                     **{name: RowwiseParallel() for name in ROWS}})
parallelize_module(model, mesh, {"embed": RowwiseParallel(input_layouts=Replicate()),
                                 "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
fused = False # which takes no mixture of whole and split parameters

def forward_backward():
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        logits = model(x)
    with loss_parallel():
        F.cross_entropy(logits.float().flatten(0, -2), labels.flatten()).backward()
"""

PP = SEVERAL + r"""
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

class Part(nn.Module):
    # Blocks [begin, end) of a model whose `forward` calls embed, positions, blocks, norm and head.
    def __init__(self, model, begin, end):
        super().__init__()
        self.first, self.last = begin == 0, end == len(model.blocks)
        whole = model.blocks
        model.blocks = nn.ModuleList(list(whole)[begin:end])
        if not self.first:
            model.embed = nn.Identity()
            if hasattr(model, "positions"):
                del model.positions
                model.positions = lambda at: 0
        if not self.last:
            model.norm, model.head = nn.Identity(), nn.Identity()
        self.model = model
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            return self.model(x)

model = Part(model, 0, CUT) if rank == 0 else Part(model, CUT, len(model.blocks))
stage = PipelineStage(model, rank, ranks, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=len(x),
                        loss_fn=lambda logits, labels: F.cross_entropy(logits.float().flatten(0, -2), labels.flatten()))
def forward_backward():
    schedule.step(x) if rank == 0 else schedule.step(target=labels, losses=[])
"""

STEPS = r"""
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=globals().get("fused", True))
begin, warm = None, globals().get("warm", 1)
for step in range(warm + steps):
    if step == warm:
        begin = (time.perf_counter(), time.process_time())
    optimizer.zero_grad(set_to_none=True)
    forward_backward()
    optimizer.step()
print(time.perf_counter() - begin[0], time.process_time() - begin[1],
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""

CASES = {"one": ONE, "compiled": COMPILED, "accumulated": ACCUMULATED, "dp": DP, "fsdp": FSDP, "tp": TP, "pp": PP}
