"""Errors of this package."""


class PlanError(ValueError):
    """A plan that cannot be read or used. The message names the file or the part, and the remedy."""
