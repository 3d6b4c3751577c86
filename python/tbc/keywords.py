"""Types of the keywords of tbc.plan and its like: the flags of the commands.

Written by python/wheel/keywords.py from the flags themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict, Union

if TYPE_CHECKING:
    from tbc.cluster import Cluster

Text = Union[str, "os.PathLike[str]"]
Pairs = Union[str, Mapping[str, object]]
Texts = Union[str, Iterable[str], Mapping[str, object]]


class CheckKeywords(TypedDict, total=False):
    """Flags of `tbc check`."""

    # Sequence length (default: length of the position table, else 4096)
    seq: int
    # Size of a symbolic dim, NAME=VALUE (repeatable)
    dim: Texts
    # Hold an input constant, INPUT=ones|zeros, or keep it, INPUT=input (repeatable)
    fix: Texts
    # Initializer A is parameter B, A=B, or its transpose, A=B^T (repeatable)
    tie: Texts
    # Glob of tensors that are constants, not parameters (repeatable)
    constant: Texts
    # Glob of tensors that are parameters, whatever they look like (repeatable)
    parameter: Texts
    # Value without a gradient, VALUE or VALUE@NODE for one reader, as globs (repeatable)
    detach: Texts
    # Directory that may hold the external data as links
    external_data_root: Text
    # cross-entropy, mse, or the name of an output that is the loss
    loss: Text
    # Optimizer
    optimizer: Text
    # Weight decay (default: 0.01 of adamw, 0.1 of muon, else 0)
    weight_decay: float
    # Decay of the first moment (default: 0.9); for adam, adamw, muon
    beta1: float
    # Decay of the second moment (default: 0.999); for adam, adamw, muon
    beta2: float
    # Added to the denominator (default: 1e-8, 1e-10 of adagrad); for adam, adamw, muon, adagrad,
    # rowwise-adagrad
    epsilon: float
    # Momentum (default: 0, 0.9 of sgd-momentum, 0.95 of muon); for sgd, sgd-momentum, muon
    momentum: float
    # Nesterov momentum (default of muon); for sgd, sgd-momentum, muon
    nesterov: bool
    # Momentum without Nesterov's step; for muon
    no_nesterov: bool
    # Iterations that orthogonalize a direction (default: 5); for muon
    ns_steps: int
    # Steps of matrices of the size of AdamW's, for one learning rate; for muon
    match_rms: bool
    # Power of the step that is the weight of new squares (default: -0.8); for adafactor
    beta2_decay: float
    # Smallest root of a second moment (default: machine epsilon, 2^-23 in f32); for adafactor
    epsilon1: float
    # Smallest size of a parameter, to which steps are relative (default: 1e-3); for adafactor
    epsilon2: float
    # Largest size of the direction of a parameter (default: 1); for adafactor
    clip_threshold: float
    # How the rate falls: lr / (1 + (step - 1) * X) (default: 0); for adagrad
    lr_decay: float
    # Sums of squares before the first step (default: 0); for adagrad, rowwise-adagrad
    initial_accumulator: float
    # Largest norm of all gradients together
    clip_norm: float
    # Largest magnitude of an element of a gradient
    clip_value: float
    # Part of the target spread over all classes; for cross-entropy
    label_smoothing: float
    # Label that does not count (default: -100); for cross-entropy
    ignore_index: int
    # Train without the model's dropout
    no_dropout: bool
    # Pad a large vocabulary to a multiple of this (default: 128; 1: do not)
    pad_vocabulary: int
    # Tokens of a sample that an expert takes, as a multiple of an even share; it drops what
    # comes later (default: drop nothing)
    capacity_factor: float
    # Seed of dropout
    seed: int
    # Loss scale to begin with (default: 65536)
    loss_scale_init: float
    # Factor by which the loss scale grows (default: 2)
    loss_scale_growth: float
    # Factor of the loss scale on overflow (default: 0.5)
    loss_scale_backoff: float
    # Steps without overflow until the loss scale grows (default: 2000)
    loss_scale_interval: int
    # Glob of parameters whose weights do not decay (repeatable)
    no_decay: Texts
    # Glob of matrices that step by AdamW (repeatable); for muon
    no_muon: Texts
    # Precision of parameters and matmuls (default: bf16, or f16 for a model exported in f16)
    precision: Text
    # dynamic, none, or the number that gradients are scaled by (default: dynamic for f16, else
    # none)
    loss_scale: Text
    # Glob of parameters that are not trained (repeatable)
    freeze: Texts


class JudgeKeywords(TypedDict, total=False):
    """Flags of `tbc judge`."""

    # ONNX model file
    model: Text
    # Number of devices
    gpus: int
    # Kind of the configuration (default: recognised)
    from_: Text
    # Cluster preset or TOML file (default: h100-sxm)
    cluster: Union[Text, "Cluster"]
    # The program that runs it (default: the configuration's framework, else tbc)
    executor: Text
    # Sequence length (default: the configuration's)
    seq: int
    # Global batch in samples, if the configuration has none
    batch: int
    # Do not search for a better plan
    alone: bool


class NewKeywords(TypedDict, total=False):
    """Flags of `tbc new`."""

    # config.json of Hugging Face's transformers; model_type decides the family
    from_: Text
    # Layers
    layers: int
    # Width of the residual stream
    hidden: int
    # Attention heads
    heads: int
    # Heads of keys and values (default: --heads)
    kv_heads: int
    # Width of a head (default: hidden / heads)
    head_dim: int
    # Inner width of the MLP, or of one expert
    ffn: int
    # Rows of the token table
    vocab: int
    # Rows of the position table; without one, the length of the input, else left open
    seq: int
    # Experts of a layer (llama and its relatives)
    experts: int
    # Experts that compute a token (default: 2)
    experts_per_token: int
    # Side of the image, in pixels (vit, dit)
    image: int
    # Side of a patch, in pixels (vit, dit)
    patch: int
    # Classes (vit, dit)
    classes: int
    # The output's table is the input's
    tied: bool
    # The output has a table of its own
    untied: bool
    # Activation of the MLP
    activation: Text
    # Leave ALiBi out: as kernels that have it inside are priced (mpt, bloom)
    no_alibi: bool


class PlanKeywords(TypedDict, total=False):
    """Flags of `tbc plan`."""

    # Sequence length (default: length of the position table, else 4096)
    seq: int
    # Size of a symbolic dim, NAME=VALUE (repeatable)
    dim: Texts
    # Hold an input constant, INPUT=ones|zeros, or keep it, INPUT=input (repeatable)
    fix: Texts
    # Initializer A is parameter B, A=B, or its transpose, A=B^T (repeatable)
    tie: Texts
    # Glob of tensors that are constants, not parameters (repeatable)
    constant: Texts
    # Glob of tensors that are parameters, whatever they look like (repeatable)
    parameter: Texts
    # Value without a gradient, VALUE or VALUE@NODE for one reader, as globs (repeatable)
    detach: Texts
    # Directory that may hold the external data as links
    external_data_root: Text
    # cross-entropy, mse, or the name of an output that is the loss
    loss: Text
    # Optimizer
    optimizer: Text
    # Weight decay (default: 0.01 of adamw, 0.1 of muon, else 0)
    weight_decay: float
    # Decay of the first moment (default: 0.9); for adam, adamw, muon
    beta1: float
    # Decay of the second moment (default: 0.999); for adam, adamw, muon
    beta2: float
    # Added to the denominator (default: 1e-8, 1e-10 of adagrad); for adam, adamw, muon, adagrad,
    # rowwise-adagrad
    epsilon: float
    # Momentum (default: 0, 0.9 of sgd-momentum, 0.95 of muon); for sgd, sgd-momentum, muon
    momentum: float
    # Nesterov momentum (default of muon); for sgd, sgd-momentum, muon
    nesterov: bool
    # Momentum without Nesterov's step; for muon
    no_nesterov: bool
    # Iterations that orthogonalize a direction (default: 5); for muon
    ns_steps: int
    # Steps of matrices of the size of AdamW's, for one learning rate; for muon
    match_rms: bool
    # Power of the step that is the weight of new squares (default: -0.8); for adafactor
    beta2_decay: float
    # Smallest root of a second moment (default: machine epsilon, 2^-23 in f32); for adafactor
    epsilon1: float
    # Smallest size of a parameter, to which steps are relative (default: 1e-3); for adafactor
    epsilon2: float
    # Largest size of the direction of a parameter (default: 1); for adafactor
    clip_threshold: float
    # How the rate falls: lr / (1 + (step - 1) * X) (default: 0); for adagrad
    lr_decay: float
    # Sums of squares before the first step (default: 0); for adagrad, rowwise-adagrad
    initial_accumulator: float
    # Largest norm of all gradients together
    clip_norm: float
    # Largest magnitude of an element of a gradient
    clip_value: float
    # Part of the target spread over all classes; for cross-entropy
    label_smoothing: float
    # Label that does not count (default: -100); for cross-entropy
    ignore_index: int
    # Train without the model's dropout
    no_dropout: bool
    # Pad a large vocabulary to a multiple of this (default: 128; 1: do not)
    pad_vocabulary: int
    # Tokens of a sample that an expert takes, as a multiple of an even share; it drops what
    # comes later (default: drop nothing)
    capacity_factor: float
    # Seed of dropout
    seed: int
    # Loss scale to begin with (default: 65536)
    loss_scale_init: float
    # Factor by which the loss scale grows (default: 2)
    loss_scale_growth: float
    # Factor of the loss scale on overflow (default: 0.5)
    loss_scale_backoff: float
    # Steps without overflow until the loss scale grows (default: 2000)
    loss_scale_interval: int
    # Glob of parameters whose weights do not decay (repeatable)
    no_decay: Texts
    # Glob of matrices that step by AdamW (repeatable); for muon
    no_muon: Texts
    # Precision of parameters and matmuls (default: bf16, or f16 for a model exported in f16)
    precision: Text
    # dynamic, none, or the number that gradients are scaled by (default: dynamic for f16, else
    # none)
    loss_scale: Text
    # Glob of parameters that are not trained (repeatable)
    freeze: Texts
    # Number of devices
    gpus: int
    # Cluster preset (tbc cluster lists them) or TOML file (default: h100-sxm)
    cluster: Union[Text, "Cluster"]
    # The program that will run the plan, e.g. megatron (default: tbc, the only one that tbc
    # compile takes)
    executor: Text
    # Global batch in samples (default: 2^19 tokens, or 32 per device)
    batch: int
    # Memory per device to stay within, e.g. 40GiB
    memory_limit: Text
    # Plan by the middle of what memory may take instead of its upper end: a faster plan, which
    # may run out of memory
    memory_risk: bool
    # What matmuls read: own, the types of their operands; fp8, 8 bits, rounded right before
    matmul_precision: Text
    # Tokens of the fullest rank of experts over the mean of all ranks, for experts without a
    # capacity
    expert_imbalance: float
    # Pin the mesh, e.g. dp=2,fsdp=4,tp=2
    mesh: Pairs
    # Pin the strategy
    strategy: Text
    # Pin the ZeRO stage
    zero: int
    # Pin the micro-batch in samples
    micro_batch: int
    # Pin the number of model chunks per pipeline stage
    virtual_stages: int
    # Pin how attention is split over axis cp
    context: Text
    # Pin how tokens are distributed over axis cp
    sequence_order: Text
    # Pin the order of the chunks over stages: loop (looped) or v (V-shaped)
    placement: Text
    # Pin the pipeline schedule
    schedule: Text
    # Pin what is recomputed: none, selective, full; selective:8 in 8 blocks
    recompute: Text
    # Keep in host memory: none, optimizer (states), residuals, all; residuals:8 of 8 blocks;
    # auto: what must be
    offload: Text
    # Bytes of gradients reduced together: auto, none, or a size such as 25MiB
    bucket_size: Text
    # Bytes of stored parameters gathered together: auto, none, or a size
    gather_size: Text
    # How many gathers ahead of its use a stored parameter is gathered: auto, none, or a number
    prefetch: Text
    # Pin a decision (tp=8, zero=3, schedule=1f1b ..) or how the ops that a name matches are
    # split and kept, or where a stage begins: GLOB=tp|column|row|whole|recompute|keep|begin
    # (repeatable)
    pin: Texts
    # Rule out a decision (tp=8, zero=3, schedule=1f1b ..), an axis or recompute altogether (tp),
    # or GLOB=SPEC as of --pin (repeatable)
    forbid: Texts
    # Plan as if the model had no device annotations, which are pins otherwise
    ignore_annotations: bool
    # Plans whose times differ by no more are equals, and the simplest of them is the answer; 0:
    # the fastest
    tie_percent: float
    # Answers to keep, the best included
    top: int
    # Write plan.json here (- for stdout)
    output: Text
    # Say on stderr how much the search compared, and in what time
    verbose: bool
    # Seconds of search after which the best that was found is taken; the plan then depends on
    # the machine
    time_limit: float
    # Plan for the largest batch that fits without accumulation
    find_batch_size: bool
    # With --find-batch-size: try it on this machine, and take less until it fits
    trial: bool


class SizeKeywords(TypedDict, total=False):
    """Flags of `tbc size`."""

    # Sequence length (default: length of the position table, else 4096)
    seq: int
    # Size of a symbolic dim, NAME=VALUE (repeatable)
    dim: Texts
    # Hold an input constant, INPUT=ones|zeros, or keep it, INPUT=input (repeatable)
    fix: Texts
    # Initializer A is parameter B, A=B, or its transpose, A=B^T (repeatable)
    tie: Texts
    # Glob of tensors that are constants, not parameters (repeatable)
    constant: Texts
    # Glob of tensors that are parameters, whatever they look like (repeatable)
    parameter: Texts
    # Value without a gradient, VALUE or VALUE@NODE for one reader, as globs (repeatable)
    detach: Texts
    # Directory that may hold the external data as links
    external_data_root: Text
    # cross-entropy, mse, or the name of an output that is the loss
    loss: Text
    # Optimizer
    optimizer: Text
    # Weight decay (default: 0.01 of adamw, 0.1 of muon, else 0)
    weight_decay: float
    # Decay of the first moment (default: 0.9); for adam, adamw, muon
    beta1: float
    # Decay of the second moment (default: 0.999); for adam, adamw, muon
    beta2: float
    # Added to the denominator (default: 1e-8, 1e-10 of adagrad); for adam, adamw, muon, adagrad,
    # rowwise-adagrad
    epsilon: float
    # Momentum (default: 0, 0.9 of sgd-momentum, 0.95 of muon); for sgd, sgd-momentum, muon
    momentum: float
    # Nesterov momentum (default of muon); for sgd, sgd-momentum, muon
    nesterov: bool
    # Momentum without Nesterov's step; for muon
    no_nesterov: bool
    # Iterations that orthogonalize a direction (default: 5); for muon
    ns_steps: int
    # Steps of matrices of the size of AdamW's, for one learning rate; for muon
    match_rms: bool
    # Power of the step that is the weight of new squares (default: -0.8); for adafactor
    beta2_decay: float
    # Smallest root of a second moment (default: machine epsilon, 2^-23 in f32); for adafactor
    epsilon1: float
    # Smallest size of a parameter, to which steps are relative (default: 1e-3); for adafactor
    epsilon2: float
    # Largest size of the direction of a parameter (default: 1); for adafactor
    clip_threshold: float
    # How the rate falls: lr / (1 + (step - 1) * X) (default: 0); for adagrad
    lr_decay: float
    # Sums of squares before the first step (default: 0); for adagrad, rowwise-adagrad
    initial_accumulator: float
    # Largest norm of all gradients together
    clip_norm: float
    # Largest magnitude of an element of a gradient
    clip_value: float
    # Part of the target spread over all classes; for cross-entropy
    label_smoothing: float
    # Label that does not count (default: -100); for cross-entropy
    ignore_index: int
    # Train without the model's dropout
    no_dropout: bool
    # Pad a large vocabulary to a multiple of this (default: 128; 1: do not)
    pad_vocabulary: int
    # Tokens of a sample that an expert takes, as a multiple of an even share; it drops what
    # comes later (default: drop nothing)
    capacity_factor: float
    # Seed of dropout
    seed: int
    # Loss scale to begin with (default: 65536)
    loss_scale_init: float
    # Factor by which the loss scale grows (default: 2)
    loss_scale_growth: float
    # Factor of the loss scale on overflow (default: 0.5)
    loss_scale_backoff: float
    # Steps without overflow until the loss scale grows (default: 2000)
    loss_scale_interval: int
    # Glob of parameters whose weights do not decay (repeatable)
    no_decay: Texts
    # Glob of matrices that step by AdamW (repeatable); for muon
    no_muon: Texts
    # Precision of parameters and matmuls (default: bf16, or f16 for a model exported in f16)
    precision: Text
    # dynamic, none, or the number that gradients are scaled by (default: dynamic for f16, else
    # none)
    loss_scale: Text
    # Glob of parameters that are not trained (repeatable)
    freeze: Texts
    # Tokens of the whole training, such as 300B or 15T; samples for a model without sequences
    tokens: Text
    # Global batch in samples at every size (default: as tbc plan)
    batch: int
    # Largest batch in tokens that trains well; each size then takes the largest within it
    max_batch_tokens: Text
    # Mark sizes within it, such as 30d or 36h
    deadline: Text
    # Mark sizes within it, in the currency of the prices, such as 2e6
    budget: Text
    # Cluster preset or TOML file (repeatable; default: presets with a price)
    cluster: Union[Text, "Cluster"]
    # Smallest number of devices; sizes double
    gpus_from: int
    # Largest number of devices
    gpus_to: int
    # TOML file of prices (default: examples)
    prices: Text
    # Write the example prices here, to be edited, and stop
    write_prices: Text
    # Print every size, not only the Pareto front
    all: bool
    # Write an SVG picture (- for stdout)
    output: Text
