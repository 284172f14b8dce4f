"""Agents that are wrong in one way each, and agents that are right."""

import collections
import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs
from linear_agents import PACKAGES, TINY

from retrax import testing
from retrax.agents import Agent, Decision, Update, reactor
from retrax.agents.reward_scale import DISCOUNTED_SUM
from retrax.datatypes import EnvironmentSpec, SequenceSpec
from retrax.networks import make_reactor_network
from retrax.testing import check_agent, check_agent_shapes

DISCRETE = EnvironmentSpec(
    specs.BoundedArray((3,), np.float32, -1.0, 1.0), specs.DiscreteArray(2, np.int32)
)
MASKED = DISCRETE._replace(masks_actions=True)
CONTINUOUS = DISCRETE._replace(actions=specs.BoundedArray((2,), np.float32, -1.0, 0.5))
EXTRAS = {"value": jax.ShapeDtypeStruct((), np.float32)}


Learner = collections.namedtuple("Learner", "weights count key")


def init(key):
    return Learner(jnp.zeros((3, 2)), jnp.zeros((), jnp.int32), key)


def begin(key, actor_id, num_actors):
    return {"key": key, "share": actor_id / jnp.float32(num_actors)}


def explore(params, state, timestep):
    values = timestep.observation @ params
    key, action_key = jax.random.split(state["key"])
    action = jax.random.randint(action_key, (), 0, values.shape[0], jnp.int32)
    return Decision(action, {"value": values[action]}, {**state, "key": key})


def exploit(params, state, timestep):
    return Decision(jnp.argmax(timestep.observation @ params).astype(jnp.int32), {}, state)


def gradients(state, sample):
    def loss(weights):
        values = sample.rows.observation[:, 0] @ weights
        taken = jnp.take_along_axis(values, sample.rows.action[:, :1], 1)[:, 0]
        errors = sample.rows.reward[:, 1] - taken
        return jnp.mean(sample.weights * errors**2), jnp.abs(errors)

    grads, priorities = jax.grad(loss, has_aux=True)(state.weights)
    return grads, Update(priorities, {"error": jnp.mean(priorities)})


def apply(state, grads):
    return state._replace(weights=state.weights - 0.1 * grads, count=state.count + 1)


GOOD = Agent(
    init=init,
    acting_params=lambda state: state.weights,
    begin=begin,
    explore=explore,
    exploit=exploit,
    gradients=gradients,
    apply=apply,
    sequence=SequenceSpec(length=3, crosses_episodes=False, extras=EXTRAS),
)
# A state that is a bare key, another that is empty, no gradients: a pytree may be anything.
RANDOM = Agent(
    init=lambda key: key,
    acting_params=lambda key: (),
    begin=lambda key, actor_id, num_actors: key,
    explore=lambda params, key, timestep: Decision(
        jax.random.randint(key, (), 0, 2, jnp.int32), {}, jax.random.split(key)[0]
    ),
    exploit=lambda params, key, timestep: Decision(jnp.zeros((), jnp.int32), {}, key),
    gradients=lambda key, sample: ((), Update(jnp.zeros_like(sample.weights), {})),
    apply=lambda key, grads: jax.random.fold_in(key, 1),
    sequence=SequenceSpec(length=2),
)
STATELESS = RANDOM._replace(
    begin=lambda key, actor_id, num_actors: (),
    explore=lambda params, state, timestep: Decision(jnp.zeros((), jnp.int32), {}, state),
    init=lambda key: (),
    apply=lambda state, grads: state,
)


def refused(check, agent, message, spec=DISCRETE, **options):
    with pytest.raises(ValueError, match=message) as caught:
        check(agent, spec, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")


@pytest.mark.parametrize(("agent", "num_envs"), [(GOOD, 2), (GOOD, 3), (RANDOM, 2), (STATELESS, 2)])
def test_right_agents_pass(agent, num_envs):
    check_agent(agent, DISCRETE, num_envs=num_envs)


def test_the_public_module():
    assert testing.check_agent is check_agent
    assert {"check_agent", "check_agent_shapes", "check_environment"} == set(testing.__all__)


def acts(**changes):
    """A behaviour whose decisions are changed."""

    def act(params, state, timestep):
        return explore(params, state, timestep)._replace(
            **{name: change(timestep) for name, change in changes.items()}
        )

    return act


def learns(grads=None, **changes):
    """Gradients, and an update, that are changed."""

    def changed(state, sample):
        found, update = gradients(state, sample)
        update = update._replace(**{name: change(sample) for name, change in changes.items()})
        return (found if grads is None else grads(found)), update

    return changed


def mutates(params, state, timestep):
    decision = explore(params, state, timestep)
    state["share"] = jnp.zeros(())
    return decision


BARE = {"key": jax.random.key(0)}
# One of an agent's functions, another one in its place, and what is said of it.
WRONG_SHAPES = [
    ("init", lambda key: init(key) if key.sum() > 0 else None, "traced .*: (Value|Type)Error"),
    ("exploit", lambda p, s, t: exploit(p, s, t) if t.reward > 0 else None, "Tracer.*Error"),
    ("explore", mutates, "must not change its arguments"),
    ("exploit", lambda p, s, t: (0, {}, s), "must return a Decision, got a tuple"),
    ("exploit", acts(action=lambda t: t.reward), "the action must be int32 [], got float32 []"),
    ("explore", acts(action=lambda t: jnp.int32([0, 0])), "action must be int32 [], got int32 [2]"),
    ("explore", acts(action=lambda t: None), "the action must be an array, got None"),
    ("explore", acts(extras=lambda t: {"mu": 0.0}), "(missing: ['value']; unexpected: ['mu'])"),
    (
        "explore",
        acts(extras=lambda t: {"value": t.observation}),
        "extras['value'] must be float32 [], got float32 [3]",
    ),
    (
        "exploit",
        acts(state=lambda t: {**BARE, "share": t.step_type}),
        "the actor state['share'] must be float32 [], got int32 []",
    ),
    ("explore", acts(state=lambda t: ()), "has the wrong structure (missing: ['key'], ['share'])"),
    ("gradients", lambda *x: gradients(*x)[0], "must return the pair (Gradients, Update)"),
    (
        "gradients",
        learns(grads=lambda g: {"w": g.astype(jnp.int32)}),
        "gradients['w'] must be floats, which can be averaged, got int32",
    ),
    (
        "gradients",
        learns(priorities=lambda s: jnp.zeros(())),
        "priorities must be float32 [3], got float32 []",
    ),
    ("gradients", learns(metrics=lambda s: ()), "metrics must be a dictionary, got a tuple"),
    ("gradients", learns(metrics=lambda s: {"a\nb": 0.0}), r"must be printable, got 'a\nb'"),
    (
        "gradients",
        learns(metrics=lambda s: {"error": s.weights}),
        "the metric 'error' must be float32 [], got float32 [3]",
    ),
    ("apply", lambda s, g: s._replace(count=s.count + 0.5), ".count must be int32 [], got float32"),
    ("apply", lambda s, g: tuple(apply(s, g)), "wrong structure (missing: .count, .key, "),
]


def test_what_fits_no_other_function_is_found_there():
    wide = GOOD._replace(init=lambda key: init(key)._replace(weights=jnp.zeros((4, 2))))
    message = "Agent.explore cannot be traced with arguments of the environment's .*: TypeError: d"
    refused(check_agent, wide, message)
    nested = GOOD._replace(gradients=learns(grads=lambda g: {"w": g}))
    refused(check_agent, nested, r"Agent\.apply cannot be traced .*: TypeError")


@pytest.mark.parametrize(("name", "function", "message"), WRONG_SHAPES)
def test_wrong_shapes_are_refused_without_compilation(name, function, message, monkeypatch):
    monkeypatch.setattr(jax, "jit", lambda *args, **kwargs: pytest.fail("compiled"))
    said = message if ".*" in message else re.escape(message)
    refused(check_agent, GOOD._replace(**{name: function}), rf"Agent\.{name}.*{said}")


class Weak:
    """A function whose traces, or whose calls, differ from each other."""

    def __init__(self):
        self.count = 0

    def traced(self, key):
        self.count += 1
        return init(key)._replace(weights=jnp.full((3, 2), self.count, jnp.float32))

    def constant(self, key):
        self.count += 1
        return init(key)._replace(weights=jnp.asarray(np.full((3, 2), self.count, np.float32)))

    def called(self, key):
        def count(_):
            self.count += 1
            return np.float32(self.count)

        from jax.experimental import io_callback

        number = io_callback(count, jax.ShapeDtypeStruct((), np.float32), jnp.zeros(()))
        return init(key)._replace(weights=jnp.full((3, 2), number))


def out_of_bounds_on_last_steps(params, state, timestep):
    decision = explore(params, state, timestep)
    return decision._replace(action=jnp.where(timestep.step_type == 2, 2, decision.action))


def forgets_on_last_steps(state, sample):
    """The mean over steps that are not last ones is NaN where there are none."""
    found, update = gradients(state, sample)
    ended = jnp.any(sample.rows.is_last & (sample.rows.discount == 1))  # by truncation only
    return jnp.where(ended, jnp.nan, found), update


def learns_from(steps):
    """One-step Q-learning from the steps `[B, T]` that a mask selects; complete with both masks."""

    def gradients(state, sample):
        rows = sample.rows

        def loss(weights):
            values = rows.observation @ weights
            taken = jnp.take_along_axis(values[:, :-1], rows.action[:, :-1, None], -1)[..., 0]
            bootstrap = jax.lax.stop_gradient(values[:, 1:].max(-1))
            errors = rows.reward[:, 1:] + 0.9 * rows.discount[:, 1:] * bootstrap - taken
            errors = jnp.where(steps(sample), errors, 0.0)
            return jnp.sum(sample.weights[:, None] * errors**2), jnp.abs(errors).max(-1)

        grads, priorities = jax.grad(loss, has_aux=True)(state.weights)
        return grads, Update(priorities, {"error": jnp.mean(priorities)})

    return gradients


def test_one_step_q_learning_with_both_masks_is_accepted():
    both = learns_from(lambda sample: sample.mask[:, 1:] & ~sample.rows.is_last[:, :-1])
    check_agent(GOOD._replace(gradients=both), DISCRETE)


PURE = "Agent.init must be pure: two "
WRONG_VALUES = {
    "trace": ("init", Weak().traced, PURE + "traces of it differ"),
    "constants": ("init", Weak().constant, PURE + "traces of it differ"),
    "calls": ("init", Weak().called, PURE + "calls with the same arguments give different results"),
    "weak type of a state": (
        "init",
        lambda key: init(key)._replace(weights=jnp.full((3, 2), 0.0)),
        "Agent.gradients must be compiled once, but was compiled again",
    ),
    "discrete actions": (
        "init",
        lambda key: init(key)._replace(weights=jnp.zeros((3, 5))),
        "Agent.explore: the action must be legal, within 0 and 1, got [2-4] at time step",
    ),
    "actions on last steps": (
        "explore",
        out_of_bounds_on_last_steps,
        "Agent.explore: the action must be legal, within 0 and 1, got 2 at time step 2",
    ),
    "negative priorities": (
        "gradients",
        learns(priorities=lambda s: -s.weights),
        r"priorities must be finite and >= 0, got \[-0",
    ),
    "infinite priorities": (
        "gradients",
        learns(priorities=lambda s: s.weights / 0),
        r"priorities must be finite and >= 0, got \[inf inf\]",
    ),
    "gradients": ("gradients", learns(grads=lambda g: g / 0), "gradients must be finite"),
    "truncated episodes": ("gradients", forgets_on_last_steps, "gradients must be finite"),
    "actions of last rows": (
        "gradients",
        learns_from(lambda sample: sample.mask[:, :-1]),
        r"Agent\.gradients must not depend on the action of an episode's last row",
    ),
    "padding": (
        "gradients",
        learns_from(lambda sample: ~sample.rows.is_last[:, :-1]),
        r"Agent\.gradients must not depend on rows where Sample\.mask is False",
    ),
}


@pytest.mark.parametrize(("name", "function", "message"), WRONG_VALUES.values(), ids=WRONG_VALUES)
def test_wrong_values_are_refused(name, function, message):
    sequence = dataclasses.replace(GOOD.sequence, length=5)  # sequences that end have padding
    agent = GOOD._replace(sequence=sequence, **{name: function})
    check_agent_shapes(agent, DISCRETE)
    refused(check_agent, agent, message)


def test_continuous_actions_must_be_within_their_bounds():
    def act(action):
        return lambda params, key, timestep: Decision(jnp.array(action, jnp.float32), {}, key)

    agent = RANDOM._replace(explore=act([-1, 0.5]), exploit=act([0, 0]))
    check_agent(agent, CONTINUOUS)
    message = r"exploit: the action must be legal, within -1\.0 and 0\.5, got 0\.75 at time step 0"
    refused(check_agent, agent._replace(exploit=act([0, 0.75])), message, CONTINUOUS)
    refused(check_agent, RANDOM, "exploit: the action must be legal, .* got 0 at time step", MASKED)
    message = "Agent.explore: the action must be .*, got nan"
    refused(check_agent, agent._replace(explore=act([0, np.nan])), message, CONTINUOUS)


def test_arguments_of_the_check():
    refused(check_agent, GOOD, "num_envs must be at least 2, got 1", num_envs=1)
    refused(check_agent, "reactor", "make_agent must return an Agent; its type is str")
    refused(check_agent, GOOD._replace(sequence=None), "Agent.sequence must be a SequenceSpec, got")


def test_extras_that_the_entry_names():
    entry = dataclasses.replace(reactor.AGENT, episode_metrics=("value",))
    check_agent_shapes(GOOD, DISCRETE, entry=entry)
    mode = r"exploit: the extra 'value' must be bool \[\], got float32 \[\]"
    for field, name, agent, message in (
        ("episode_metrics", "arm", GOOD, "explore must return the extra 'arm', .*episode_metrics"),
        ("evaluation_modes", "arm", GOOD, "exploit must return the extra 'arm', .*ation_modes"),
        ("evaluation_modes", "value", GOOD._replace(exploit=acts()), mode),
    ):
        entry = dataclasses.replace(reactor.AGENT, **{field: (name,)})
        refused(check_agent_shapes, agent, message, entry=entry)


# What other presets have is in one of these. Wrappers too: scaled rewards, stacks, an average.
RESIDUAL = {"residual": True, "critic_sizes": (6, 6), "action_input": "concatenated"}
OURS = [
    ("reactor", "small", MASKED, {"frame_stack": 3, "initial_state": "stored"}),
    ("agent57", "small_r2d2", DISCRETE, {}),
]
SLOW = [
    ("acer", "small_continuous", CONTINUOUS, {"exploit_average": True, "memory_size": 4}),
    ("d4pg", "small", CONTINUOUS, {"frame_stack": 3, "normalize_observations": True}),
    ("acer", "small", MASKED, {"frame_stack": 3, "exploit_average": True}),
    ("acer", "paper_mujoco", DISCRETE, {"estimator": "tis", "trust_region": False}),
    ("d4pg", "paper", CONTINUOUS, {"critic": "scalar", **RESIDUAL, "weight_decay": 0.1}),
    ("d4pg", "paper", CONTINUOUS, {"critic": "mixture_of_gaussians"}),
    ("agent57", "small", DISCRETE, {"evaluation_average_decay": 0.75}),
    ("reactor", "paper", DISCRETE, {"distributional": False, "policy_gradient": "tislr"}),
    ("acer", "paper_mujoco", CONTINUOUS, {"returns": "importance", "stochastic_dueling": False}),
    ("agent57", "small_ngu", MASKED, {"intrinsic_rewards": "stored"}),
]


def with_finite_metrics(agent):
    """The agent, whose priorities are NaN where one of its metrics is."""

    def gradients(state, sample):
        found, update = agent.gradients(state, sample)
        is_finite = jnp.all(jnp.isfinite(jnp.stack([*update.metrics.values()])))
        return found, update._replace(priorities=jnp.where(is_finite, update.priorities, jnp.nan))

    return agent._replace(gradients=gradients)


@pytest.mark.parametrize(
    ("name", "preset", "spec", "changes"),
    [*OURS, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_our_agents_pass(name, preset, spec, changes):
    entry = PACKAGES[name].AGENT
    config = dataclasses.replace(entry.presets[preset](), **(TINY[name] | changes))
    agent = entry.make_agent(spec, config)
    assert agent.sequence.frame_stack == getattr(config, "frame_stack", 1)
    is_scaled = preset.startswith("small") and name != "agent57"
    assert (DISCOUNTED_SUM in agent.sequence.extras) == is_scaled
    check_agent(with_finite_metrics(agent), spec, entry=entry)


def test_a_network_of_another_size_is_refused_before_training():
    config = reactor.Config.small()
    for observations, num_actions, message in [
        (DISCRETE.observations, 5, r"extras\['\w+'\] must be float32 \[2\], got float32 \[5\]"),
        (specs.Array((7,), np.float32), 2, "Agent.explore cannot be traced .*"),
    ]:
        network = make_reactor_network(
            observations, num_actions=num_actions, num_atoms=config.num_atoms, policy_epsilon=0.01
        )
        agent = reactor.make_agent(DISCRETE, config, network=network)
        refused(check_agent_shapes, agent, message)
