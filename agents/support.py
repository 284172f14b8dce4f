"""Advice on the support of return distributions, from the metrics of training."""

from collections.abc import Mapping
from typing import Protocol

LARGEST_MASS = 0.05
_OR_SCALE = ", or set scale_rewards with vmin -2 and vmax 2"


class HasSupport(Protocol):
    """A config with a support."""

    @property
    def vmin(self) -> float:
        """The smallest atom."""
        ...

    @property
    def vmax(self) -> float:
        """The largest atom."""
        ...

    @property
    def scale_rewards(self) -> bool:
        """Whether rewards are in units of the largest return."""
        ...


def advise_on_support(config: HasSupport, metrics: Mapping[str, float]) -> str | None:
    """A sentence if much of the targets is clipped at an end of the support: `AgentEntry.advice`.

    Args:
      config: of the agent, with `vmin` and `vmax`.
      metrics: means over some updates. `clipped_below_vmin` and `clipped_above_vmax` are read.

    Returns:
      What is wrong and what to set; None if at most 5 % of the mass is outside of each end.
    """
    ends = {"below vmin": config.vmin, "above vmax": config.vmax}
    mass, where = max((metrics.get(f"clipped_{w.replace(' ', '_')}", 0.0), w) for w in ends)
    if not mass > LARGEST_MASS:
        return None
    return (
        f"{mass:.0%} of the returns that values are trained with lie {where} = {ends[where]:g} and "
        f"are clipped: widen vmin and vmax{'' if config.scale_rewards else _OR_SCALE}."
    )
