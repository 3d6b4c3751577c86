from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy

BATCH_SIZE = 16


def make_trainer(accelerator="gpu", **others):
    """Returns the plan's Trainer."""
    return Trainer(
        accelerator=accelerator,
        strategy=DDPStrategy(bucket_cap_mb=25),
        devices=8,
        num_nodes=2,
        precision="bf16-mixed",
        accumulate_grad_batches=2,
        **others,
    )
