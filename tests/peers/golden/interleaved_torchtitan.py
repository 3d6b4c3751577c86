from torchtitan.config import ParallelismConfig


def base():
    """The model, its data and its optimizer: replace it by yours."""
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    return llama3_debugmodel()


def planned():
    config = base()
    config.training.local_batch_size = 16
    config.training.global_batch_size = 64
    config.training.seq_len = 64
    config.training.max_norm = float("inf")
    config.training.mixed_precision_param = "bfloat16"
    config.parallelism = ParallelismConfig(
        data_parallel_replicate_degree=1,
        data_parallel_shard_degree=4,
        fsdp_reshard_after_forward="always",
        tensor_parallel_degree=1,
        enable_sequence_parallel=False,
        pipeline_parallel_degree=2,
        pipeline_parallel_schedule="Interleaved1F1B",
        pipeline_parallel_microbatch_size=2,
        module_fqns_per_model_part=[
            ["tok_embeddings", "layers.0", "layers.1"],
            ["layers.2", "layers.3"],
            ["layers.4", "layers.5"],
            ["layers.6", "layers.7", "norm", "lm_head"],
        ],
        context_parallel_degree=1,
        expert_parallel_degree=1,
    )
    config.activation_checkpoint = None
    return config
