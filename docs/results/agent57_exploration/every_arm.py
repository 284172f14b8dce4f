"""Agent57 whose evaluations play every arm, for `retrax train` in this directory.

`retrax train every_arm:AGENT --environment deep_sea,size=20 --steps 60000 --evaluate-every 1000
--evaluation-episodes 64 ...`: training is Agent57's, bit for bit. Evaluator e follows arm e alone
(the preset `small` has eight, as many as environments). metrics.csv gets the mean return of each
arm, `evaluation_return_arm0` to `..._arm7`, and that of the arm that Agent57's greedy mode would
have followed, `evaluation_return_chosen`.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp

from retrax.agents import agent57
from retrax.agents.agent57 import bandit

ARMS = 8


def make_agent(environment_spec: Any, config: agent57.Config, **parts: Any) -> Any:
    """Agent57, with the arm of an evaluation's episode among its extras."""
    agent = agent57.make_agent(environment_spec, dataclasses.replace(config, evaluation="greedy"))

    def exploit(params: Any, state: Any, timestep: Any) -> Any:
        decision = agent.exploit(params, state, timestep)
        arm = decision.state.arm
        played = {f"arm{j}": arm == j for j in range(ARMS)}
        chosen = {"chosen": arm == bandit.best(decision.state.evaluator.sampled, ARMS)}
        return decision._replace(extras={**decision.extras, **played, **chosen})

    return agent._replace(exploit=exploit)


def warm_start(evaluator: Any, actors: Any) -> Any:
    """Fixes the arm; the arm that would have been chosen is the only one that `sampled` knows."""
    evaluator = agent57.AGENT.warm_start(evaluator, actors)
    choices = evaluator.evaluator
    sampled = bandit.update(choices.sampled, choices.greedy_arm, jnp.float32(1.0))
    choices = choices._replace(sampled=sampled, greedy_arm=evaluator.number % ARMS)
    return evaluator._replace(evaluator=choices)


AGENT = dataclasses.replace(
    agent57.AGENT,
    name="every_arm",
    make_agent=make_agent,
    warm_start=warm_start,
    evaluation_modes=("chosen", *(f"arm{j}" for j in range(ARMS))),
)
