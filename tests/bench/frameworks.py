"""Memory that a framework keeps on a device and tbc does not, tensor by tensor. Python standard
library only.

tbc predicts the memory of its own Programs, buffer by buffer. A published run was another program:
eager autograd saves tensors that no plan chose, reducers have buckets, and some buffers live from
first use to exit.

Each entry was read in the framework's source, named beside it. It is in bytes per token and layer
(h: width of the model, f: of its MLP), per logit, or per parameter of the rank. Example: masks of
dropout take 2 h bytes per token and layer. No entry is for one model or one row. A fitted entry
says so and names its rows.
"""

from dataclasses import dataclass


@dataclass
class Stage:
    """Sizes that decide how much memory a pipeline stage keeps on one rank."""

    tokens: int  # of one micro-batch
    layers: float  # of all micro-batches in flight together
    hidden: int
    ffn: int
    keys: int  # elements of all keys of a token
    logits: int  # of one micro-batch; 0 if another stage has the head
    parameters: float  # as gathered
    tp: int
    sequence: int  # parts of a sequence between matmuls
    data: int  # ranks that reduce gradients
    batch: int  # samples of a micro-batch
    zero: int
    recompute: bool  # all of a layer is recomputed
    ends: int  # ends of the model (embedding, head) on this stage
    joints: int  # boundaries to other stages

    def each(self, values):
        """Returns the bytes of all layers in flight, at `values` bytes per token and layer; 0 under
        recompute.
        """
        return 0 if self.recompute else values * self.tokens * self.layers


# The memory components that an entry counts for.
STATES, KEPT, PEAK = ("states",), ("activations", "activation_peak"), ("activation_peak",)
# tbc keeps logits in 16 bits from forward to backward, and their loss and its gradient in f32:
# bytes per logit at the peak.
TBC_LOGIT = 2 + 4 + 4


def megatron(row, stage, lines):
    """Korthikanti et al. 2022, section 4. A layer keeps 34 s b h bytes beside scores. tbc has no
    dropout, and its pins recompute norms if the sequence is split.
    """
    yield KEPT, "masks of dropout after attention and MLP, a byte each", stage.each(2 * stage.hidden / stage.sequence)
    if stage.sequence > 1:
        yield KEPT, "outputs of norms, kept split", stage.each(4 * stage.hidden / stage.sequence)


def nanotron(row, stage, lines):
    """huggingface/nanotron, src/nanotron: models/llama.py (GLUActivation),
    parallel/tensor_parallel/functional.py (column_linear, MemoryBuffer),
    optim/gradient_accumulator.py (FP32GradientAccumulator), optim/zero.py (_all_gather_params),
    trainer.py (make_ddp).

    The figure is most likely the caching allocator's reserved memory, so buffers of different times
    add up. Nothing is fitted. Many rows with high tensor parallelism have about 50 more tensors of
    [tokens, h], under any layout; no column tells their origin.
    """
    yield KEPT, "silu(gate), kept beside gate and up", stage.each(2 * stage.ffn / stage.tp)
    if stage.sequence > 1:
        yield KEPT, "outputs of norms, kept split", stage.each(4 * stage.hidden / stage.sequence)
        yield STATES, "two buffers for gathered activations", 4 * stage.hidden * stage.tokens
    yield STATES, "gradients in 32 bits of all parameters, also of one micro-batch", max(0, 4 * stage.parameters - lines["gradients"])
    yield STATES, "gradients of a micro-batch in 16 bits, added up after its backward", 2 * stage.parameters
    if stage.data > 1:
        what = "what all_gather_coalesced gathers into" if stage.zero else "buckets of DistributedDataParallel"
        yield STATES, what, 2 * stage.parameters


def litgpt(row, stage, lines):
    """Lightning-AI/litgpt of May 2024: litgpt/model.py (RMSNorm, CausalSelfAttention, LLaMAMLP),
    litgpt/utils.py (chunked_cross_entropy of one chunk). The recomputation of torch.compile is not
    published; it is taken to be tbc's.
    """
    if "torchcompile]" in row["variant"]:
        return
    yield KEPT, "inputs of norms in f32, and what is multiplied with their weights", stage.each(2 * 4 * stage.hidden)
    yield KEPT, "silu(gate), kept beside gate and up", stage.each(2 * stage.ffn)
    yield KEPT, "keys and values repeated for all query heads", stage.each(4 * (stage.hidden - stage.keys))
    yield PEAK, "log softmax and two gradients of it in 16 bits, not f32", (6 - TBC_LOGIT) * stage.logits
    if stage.data > 1 and stage.zero == 0 and row["variant"].startswith("Eager"):
        yield STATES, "buckets of DistributedDataParallel", 2 * stage.parameters


def torchtitan(row, stage, lines):
    """pytorch/torchtitan of December 2024: parallelisms/parallelize_llama.py, train.py.

    _apply_ac_to_transformer_block keeps every second matmul and attention, as the pins of its rows
    say. apply_fsdp keeps parameters outside blocks gathered from forward to backward. The loss is
    in f32, with its log softmax and two gradients.
    """
    yield KEPT, "product of the last matrix of a block, kept though nothing reads it", stage.each(2 * stage.hidden)
    yield PEAK, "loss in f32", (12 - TBC_LOGIT) * stage.logits
    yield PEAK, "embedding and head, gathered", 2 * 2 * int(row["vocab"]) * stage.hidden


def galvatron(row, stage, lines):
    """PKU-DAIR/Hetu-Galvatron, galvatron/core/runtime: tensor_parallel/layers.py (the gathering
    buffer), tensor_parallel/cross_entropy (softmax saved in f32).

    The tensors kept by a layer could not be read. Its profile has 46 h + 6 f bytes per token, and 4
    h more in micro-batches of several samples. tbc has 16 h + 6 f (12 h if norms are recomputed).
    Each end of the model adds 4 h, each boundary of stages 2 h. Fitted on three rows (activations
    of 1_1_8_sp, 1_2_4_sp and rank 0 of 2_1_4_sp); one width cannot tell h from f.
    """
    has = 16 if stage.sequence == 1 else 12
    yield KEPT, "more of each layer, fitted", stage.each((46 + (4 if stage.batch > 1 else 0) - has) * stage.hidden / stage.sequence)
    again = 2 if stage.logits and stage.sequence > 1 else 0  # the last norm
    ends = 4 * stage.ends + 2 * stage.joints + again
    yield KEPT, "ends of the model and of stages, fitted", ends * stage.hidden * stage.tokens / stage.sequence
    yield KEPT, "softmax in f32 instead of logits in 16 bits", 2 * stage.logits
    if stage.sequence > 1:
        yield STATES, "buffers for gathered activations", 4 * stage.hidden * stage.tokens


FRAMEWORKS = {"korthikanti": megatron, "nanotron": nanotron, "litgpt-thunder": litgpt, "galvatron": galvatron,
              "torchtitan": torchtitan}


def kept(row, stage, lines):
    """Returns the memory that a row's framework keeps on a stage beside tbc's: (components,
    description, bytes) each.

    `lines`: tbc's bytes by name. Every entry counts for the total.
    """
    framework = FRAMEWORKS.get(row["source_group"])
    return list(framework(row, stage, lines)) if framework else []
