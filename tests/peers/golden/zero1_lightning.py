from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DeepSpeedStrategy

BATCH_SIZE = 4


def make_trainer(accelerator="gpu", **others):
    """Returns the plan's Trainer."""
    return Trainer(
        accelerator=accelerator,
        strategy=DeepSpeedStrategy(stage=1, offload_optimizer=False),
        devices=8,
        num_nodes=1,
        precision="bf16-mixed",
        accumulate_grad_batches=2,
        gradient_clip_val=1,
        gradient_clip_algorithm="norm",
        **others,
    )
