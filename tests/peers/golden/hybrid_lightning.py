from lightning.pytorch import Trainer
from lightning.pytorch.strategies import FSDPStrategy

BATCH_SIZE = 2


def make_trainer(block, accelerator="gpu", **others):
    """Returns the plan's Trainer. `block`: the class of the model's blocks (transformer.h.*)."""
    return Trainer(
        accelerator=accelerator,
        strategy=FSDPStrategy(
            auto_wrap_policy={block},
            activation_checkpointing_policy={block},
            sharding_strategy="HYBRID_SHARD",
            device_mesh=(2, 8),
        ),
        devices=8,
        num_nodes=2,
        precision="bf16-mixed",
        accumulate_grad_batches=2,
        **others,
    )
