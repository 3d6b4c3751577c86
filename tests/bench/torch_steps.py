"""PyTorch's side of step_bench.py: per case, the end of a program that begins with a model
(`step_bench.TORCH_MODELS`).

Each program gets `model`, `x`, `labels`, `precision` and `steps`. It prints the wall and CPU
seconds of its steps after the warm-up, and its peak resident memory in bytes. Programs of several
processes read rank and rendezvous address from the environment and use PyTorch's own APIs:

- DistributedDataParallel;
- fully_shard of every block and of the whole model;
- DTensor's tensor parallelism: columns, then rows; embedding and head split along the vocabulary,
  logits gathered;
- a pipeline of two stages under 1F1B with a micro-batch of one sample.
"""

# Runs before the model's step is made: `forward_backward` runs one and leaves gradients.
ONE = r"""
def forward_backward():
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        logits = model(x)
    F.cross_entropy(logits.float().flatten(0, -2), labels.flatten()).backward()
"""

# The first steps compile.
COMPILED = "model, warm = torch.compile(model), 3\n" + ONE

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
model = nn.parallel.DistributedDataParallel(model)
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
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh("cpu", (ranks,))
for block in model.blocks:
    parallelize_module(block, mesh, {"qkv": ColwiseParallel(), "out": RowwiseParallel(), "up": ColwiseParallel(),
                                     "down": RowwiseParallel()})
parallelize_module(model, mesh, {"wte": RowwiseParallel(input_layouts=Replicate()),
                                 "head": ColwiseParallel(output_layouts=Replicate())})
foreach = False # which takes no mixture of whole and split parameters
""" + ONE

PP = SEVERAL + r"""
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

class Part(nn.Module):
    def __init__(self, model, begin, end):
        super().__init__()
        self.blocks = nn.ModuleList(list(model.blocks)[begin:end])
        self.wte, self.wpe = (model.wte, model.wpe) if begin == 0 else (None, None)
        self.ln, self.head = (model.ln, model.head) if end == len(model.blocks) else (None, None)
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            if self.wte is not None:
                x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
            for block in self.blocks:
                x = block(x)
            return x if self.head is None else self.head(self.ln(x))

# The head takes as long as three blocks.
cut = 9
model = Part(model, 0, cut) if rank == 0 else Part(model, cut, len(model.blocks))
stage = PipelineStage(model, rank, ranks, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=len(x),
                        loss_fn=lambda logits, labels: F.cross_entropy(logits.float().flatten(0, -2), labels.flatten()))
def forward_backward():
    schedule.step(x) if rank == 0 else schedule.step(target=labels, losses=[])
"""

STEPS = r"""
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=globals().get("foreach", True))
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

CASES = {"one": ONE, "compiled": COMPILED, "dp": DP, "fsdp": FSDP, "tp": TP, "pp": PP}
