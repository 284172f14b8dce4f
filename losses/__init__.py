"""Losses, targets and traces: pure functions of arrays, unbatched; no networks, no parameters.

Batch them with `jax.vmap`. The names follow rlax: `r_t`, `discount_t`, `q_t` belong to the step
that arrives, `a_tm1`, `q_tm1` to the one before it.
"""

from .distributional import categorical_cross_entropy, total_variation
from .off_policy import (
    distributional_off_policy_target,
    expected_off_policy_return,
    importance_coefficients,
    retrace_coefficients,
    tree_backup_coefficients,
)
from .policy_gradient import (
    beta_loo_loss,
    islr_loss,
    policy_entropy,
    tislr_loss,
    truncated_beta,
)
from .transformed import (
    IDENTITY,
    ValueTransform,
    sequence_priority,
    signed_hyperbolic,
    signed_hyperbolic_pair,
    signed_parabolic,
    transformed_n_step_double_q_return,
    transformed_off_policy_return,
)

__all__ = [
    "IDENTITY",
    "ValueTransform",
    "beta_loo_loss",
    "categorical_cross_entropy",
    "distributional_off_policy_target",
    "expected_off_policy_return",
    "importance_coefficients",
    "islr_loss",
    "policy_entropy",
    "retrace_coefficients",
    "sequence_priority",
    "signed_hyperbolic",
    "signed_hyperbolic_pair",
    "signed_parabolic",
    "tislr_loss",
    "total_variation",
    "transformed_n_step_double_q_return",
    "transformed_off_policy_return",
    "tree_backup_coefficients",
    "truncated_beta",
]
