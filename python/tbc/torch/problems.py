"""What PyTorch cannot express: errors, and warnings with names that a user can filter."""

from __future__ import annotations


class NotExpressible(NotImplementedError):
    """PyTorch has no form for a part of the plan. The message names the part and another plan."""


class PlanWarning(UserWarning):
    """PyTorch does something in another form than the plan. Losses are not affected."""


class GatherUnitWarning(PlanWarning):
    """FSDP gathers the parameters of a module together, not each by itself."""


class UnevenShardWarning(PlanWarning):
    """FSDP pads a parameter to whole rows, so a rank has more bytes than the plan says."""


class RecomputeWarning(PlanWarning):
    """PyTorch recomputes whole modules, so it keeps activations that the plan recomputes."""


class MasterWeightWarning(PlanWarning):
    """The stored parameter is the master copy; PyTorch casts it before its use."""


class PaddedVocabularyWarning(PlanWarning):
    """The module's table has no padding, which makes matmuls of the plan faster."""
