from torchtitan.config import ParallelismConfig
from torchtitan.distributed.activation_checkpoint import FullAC


def base():
    """The model, its data and its optimizer: replace it by yours."""
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    return llama3_debugmodel()


def planned():
    config = base()
    config.training.local_batch_size = 4
    config.training.global_batch_size = 64
    config.training.seq_len = 256
    config.training.max_norm = float("inf")
    config.training.mixed_precision_param = "bfloat16"
    config.parallelism = ParallelismConfig(
        data_parallel_replicate_degree=1,
        data_parallel_shard_degree=8,
        fsdp_reshard_after_forward="always",
        tensor_parallel_degree=1,
        enable_sequence_parallel=False,
        pipeline_parallel_degree=1,
        context_parallel_degree=1,
        expert_parallel_degree=1,
    )
    config.activation_checkpoint = FullAC.Config()
    return config
