"""Advice on the support of return distributions, from the metrics of training."""

from collections.abc import Mapping
from typing import Protocol

LARGEST_MASS = 0.05  # above that of a uniform distribution, where learning begins


class HasSupport(Protocol):
    """A config with a support."""

    @property
    def num_atoms(self) -> int:
        """Atoms of the distribution."""
        ...

    @property
    def vmin(self) -> float:
        """The smallest atom."""
        ...

    @property
    def vmax(self) -> float:
        """The largest atom."""
        ...


def advise_on_support(config: HasSupport, metrics: Mapping[str, float]) -> str | None:
    """A sentence if much of the predicted returns is at an end of the support: `AgentEntry.advice`.

    Args:
      config: of the agent, with `num_atoms`, `vmin` and `vmax`.
      metrics: means over some updates. `mass_at_vmin` and `mass_at_vmax` are read.

    Returns:
      What is wrong and what to set; None if each end has at most 5 % of the mass, and that of an
      untrained network besides.
    """
    ends = {"vmin": config.vmin, "vmax": config.vmax}
    mass, name = max((metrics.get(f"mass_at_{name}", 0.0), name) for name in ends)
    if not mass > LARGEST_MASS + 1 / config.num_atoms:
        return None
    return (
        f"{mass:.0%} of the predicted returns are at {name} = {ends[name]:g}, so returns lie "
        "outside of the support: widen vmin and vmax, or set scale_rewards with vmin -2 and vmax 2."
    )
