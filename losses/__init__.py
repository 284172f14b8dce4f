"""Losses, targets and traces: pure functions of arrays, unbatched; no networks, no parameters.

Batch them with `jax.vmap`. The names of a transition's parts are rlax's: the suffix `_t` (`r_t`,
`discount_t`, `q_t`) marks its destination step, `_tm1` (`a_tm1`, `q_tm1`) its source step. Of N
steps at once, `r_t` is the discounted sum of their rewards, `discount_t` the product of their
discounts. Functions of a single state have no suffixes.
"""

from .acer import *
from .continuous import *
from .distributional import *
from .off_policy import *
from .policy_gradient import *
from .transformed import *

__all__ = [
    "IDENTITY",
    "CriticLoss",
    "ValueTransform",
    "acer_policy_gradient",
    "acer_sampled_policy_gradient",
    "beta_loo_loss",
    "categorical_bellman_target",
    "categorical_cross_entropy",
    "categorical_kl_divergence",
    "categorical_projection",
    "categorical_td_loss",
    "clipped_mass",
    "deterministic_policy_gradient_loss",
    "distributional_off_policy_target",
    "expected_off_policy_return",
    "importance_coefficients",
    "importance_sampled_return",
    "importance_weighted_value_loss",
    "islr_loss",
    "mixture_of_gaussians_td_loss",
    "n_step_return",
    "policy_entropy",
    "q_opc",
    "q_retrace",
    "retrace_coefficients",
    "scalar_td_loss",
    "sequence_priority",
    "signed_hyperbolic",
    "signed_hyperbolic_pair",
    "signed_parabolic",
    "stochastic_dueling",
    "tislr_loss",
    "total_variation",
    "transformed_n_step_double_q_return",
    "transformed_off_policy_return",
    "tree_backup_coefficients",
    "truncated_beta",
    "truncated_importance_trajectory",
    "trust_region_projection",
    "v_target",
]
