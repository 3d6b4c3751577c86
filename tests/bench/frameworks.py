"""What a framework keeps in a device's memory and tbc does not, tensor by tensor. Python standard library only.

tbc predicts the memory of its own Programs, buffer by buffer. A published run was another program: eager autograd keeps what each
op saves, not what a plan chose; reducers have buckets; some buffers live from first use to exit. What is listed here was read in the
framework's source, which is named beside it, and is written as bytes for each token and layer (h: width of the model, f: of its MLP),
for each logit, or for each parameter of the rank. Nothing is for one model or one row. What was fitted instead of read says so, with
the rows.
"""

from dataclasses import dataclass


@dataclass
class Stage:
    """What decides how much a stage of a pipeline keeps, on one rank."""

    tokens: int  # of one micro-batch
    layers: float  # of all micro-batches in flight together
    hidden: int
    ffn: int
    keys: int  # elements of all keys of a token
    logits: int  # of one micro-batch; 0 where another stage has the head
    parameters: float  # gathered
    tp: int
    sequence: int  # parts of a sequence between matrix products
    data: int  # ranks that reduce gradients
    batch: int  # samples of a micro-batch
    zero: int
    recompute: bool  # all of a layer is computed again
    ends: int  # of the model, embedding or head, that the stage has
    joints: int  # with other stages

    def each(self, values):
        """Bytes of `values` bytes for each token and layer, of all layers in flight."""
        return 0 if self.recompute else values * self.tokens * self.layers


# Parts of memory of which something is kept.
STATES, KEPT, PEAK = ("states",), ("activations", "activation_peak"), ("activation_peak",)
# tbc keeps logits in 16 bits from forward to backward, and has their loss and its gradient in f32: so many bytes of each at the peak.
TBC_LOGIT = 2 + 4 + 4


def megatron(row, stage, lines):
    """Korthikanti et al. 2022, section 4: of the 34 s b h bytes that a layer keeps beside scores, tbc has no dropout, and is told by its
    pins to make norms again where the sequence is split."""
    yield KEPT, "masks of dropout after attention and MLP, a byte each", stage.each(2 * stage.hidden / stage.sequence)
    if stage.sequence > 1:
        yield KEPT, "outputs of norms, kept split", stage.each(4 * stage.hidden / stage.sequence)


def nanotron(row, stage, lines):
    """huggingface/nanotron, src/nanotron: models/llama.py (GLUActivation), parallel/tensor_parallel/functional.py (column_linear,
    MemoryBuffer), optim/gradient_accumulator.py (FP32GradientAccumulator), optim/zero.py (_all_gather_params), trainer.py (make_ddp).
    The figure is most likely what the caching allocator reserved: what is needed at different times counts together. Nothing is fitted.
    Many rows with much tensor parallelism have about 50 tensors of [tokens, h] more, whatever their layout: which, no column says."""
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
    """Lightning-AI/litgpt of May 2024: litgpt/model.py (RMSNorm, CausalSelfAttention, LLaMAMLP), litgpt/utils.py
    (chunked_cross_entropy of one chunk). What torch.compile makes again is not published: taken as what tbc does."""
    if "torchcompile]" in row["variant"]:
        return
    yield KEPT, "inputs of norms in f32, and what is multiplied with their weights", stage.each(2 * 4 * stage.hidden)
    yield KEPT, "silu(gate), kept beside gate and up", stage.each(2 * stage.ffn)
    yield KEPT, "keys and values repeated for all query heads", stage.each(4 * (stage.hidden - stage.keys))
    yield PEAK, "log softmax and two gradients of it in 16 bits, not f32", (6 - TBC_LOGIT) * stage.logits
    if stage.data > 1 and stage.zero == 0 and row["variant"].startswith("Eager"):
        yield STATES, "buckets of DistributedDataParallel", 2 * stage.parameters


def torchtitan(row, stage, lines):
    """pytorch/torchtitan of December 2024: parallelisms/parallelize_llama.py (_apply_ac_to_transformer_block keeps every second product
    and attention, as the pins of its rows say; apply_fsdp: what is in no block is gathered from forward to backward), train.py (the loss
    in f32: its log softmax and two gradients)."""
    yield KEPT, "product of the last matrix of a block, kept though nothing reads it", stage.each(2 * stage.hidden)
    yield PEAK, "loss in f32", (12 - TBC_LOGIT) * stage.logits
    yield PEAK, "embedding and head, gathered", 2 * 2 * int(row["vocab"]) * stage.hidden


def galvatron(row, stage, lines):
    """PKU-DAIR/Hetu-Galvatron, galvatron/core/runtime: tensor_parallel/layers.py (the gathering buffer), tensor_parallel/cross_entropy
    (softmax saved in f32). What a layer keeps could not be read: its profile has 46 h + 6 f bytes of a token, and 4 h more in
    micro-batches of several samples, of which tbc has 16 h + 6 f (12 h with norms made again); and 4 h at each end of the model, 2 h at
    each joint of stages. Fitted on three rows (activations of 1_1_8_sp, 1_2_4_sp and rank 0 of 2_1_4_sp), which tell h from f no better
    than one width can."""
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
    """What the framework of a row keeps on a stage beside what tbc does, of which `lines` are the bytes by name: parts of memory that it
    counts for (of the total all do), what it is, bytes."""
    framework = FRAMEWORKS.get(row["source_group"])
    return list(framework(row, stage, lines)) if framework else []
