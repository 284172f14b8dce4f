"""Agent57 (Badia et al. 2020): separate values, a family of policies, a bandit over them.

`B` denotes the batch, `T + 1` the rows of a sequence, `A` the actions. NGU is Badia et al. 2020
(ICLR), R2D2 Kapturowski et al. 2019.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax
from dm_env import StepType
from jax import Array

from ... import losses
from ...datatypes import EnvironmentSpec, Row, Sample, SequenceSpec, TimeStep
from ...networks import Agent57Networks, R2D2Inputs, choose_convolutions, make_agent57_networks
from ...networks.torsos import legal_actions
from .. import sequences
from ..base import Agent, Decision, Update, count_actions, takes_wrapper
from ..evaluation_average import evaluates_average
from ..exploration import epsilon_greedy, epsilon_greedy_probabilities, epsilon_of_actor
from ..optimization import descend, gradient_metrics
from . import bandit, episodic_memory, families, novelty
from .bandit import BanditState
from .config import Config
from .episodic_memory import MemoryState
from .novelty import Moments

# Names of the value networks.
_HEADS = {"split": ("extrinsic", "intrinsic"), "mixed": ("mixed",), "extrinsic": ("extrinsic",)}
# Networks that share an optimiser: the embedding is trained through the classifier only.
_AUXILIARY = {"embedding": ("embedding", "classifier"), "predictor": ("predictor",)}
_EPISODES_OF_A_MODE = 5  # in a row (appendix E: each mode's return is a mean of five)
_UNKNOWN = -1


class IntrinsicParams(NamedTuple):
    """Parameters of the networks of the intrinsic reward."""

    embedding: Any  # of the controllable state
    predictor: Any  # the trained network of random network distillation
    random: Any  # the fixed one
    num_updates: Array  # int32 `[]`, of the predictor


class ActingParams(NamedTuple):
    """What actors fetch."""

    values: dict[str, Any]  # parameters of the value networks, by name
    intrinsic: Any  # `IntrinsicParams`, or None without intrinsic rewards


class IntrinsicState(NamedTuple):
    """State of the intrinsic reward between observations."""

    memory: MemoryState  # the episode's states
    moments: Moments  # of the novelty errors that this actor computed
    embedding: Any  # parameters of this episode; `()` if the newest are always used


class EvaluatorState(NamedTuple):
    """State of an evaluator's choice of arms."""

    sampled: BanditState  # pulls of the sampled mode, without greedy episodes
    greedy_arm: Array  # int32 `[]`, the best one by the actors' pulls; -1 if none are known
    episodes: Array  # int32 `[]`, that have ended, of both modes


class ActorState(NamedTuple):
    """State of an actor or of an evaluator between time steps."""

    key: Array
    number: Array  # int32 `[]`, the actor's
    epsilon: Array  # float32 `[]`, epsilon_l
    arm: Array  # int32 `[]`, of this episode
    bandit: BanditState  # the actor's meta-controller: the episodes of `explore`
    evaluator: EvaluatorState  # the episodes of `exploit`, and the arm of `warm_start`
    previous_action: Array  # int32 `[]`
    memory: dict[str, Any]  # recurrent states of the value networks before the next observation
    intrinsic: Any  # `IntrinsicState`, or None without intrinsic rewards
    intrinsic_reward: Array  # float32 `[]`, of the newest observation
    extrinsic_return: Array  # float32 `[]`, undiscounted, of the episode so far
    intrinsic_return: Array  # float32 `[]`, undiscounted, of the episode so far


class LearnerState(NamedTuple):
    """State of the learner; keys are the names of value networks or of auxiliary networks."""

    params: dict[str, Any]
    target_params: dict[str, Any]  # copied every `target_update_period` updates
    optimizer_states: dict[str, optax.OptState]
    auxiliary_params: dict[str, Any]  # `embedding`, `classifier`, `predictor`; or empty
    auxiliary_states: dict[str, optax.OptState]  # `embedding` (with the classifier), `predictor`
    random_params: Any  # never trained; `()` without intrinsic reward
    num_updates: Array  # int32 `[]`


@evaluates_average("values")
@takes_wrapper
def make_agent(
    environment_spec: EnvironmentSpec,
    config: Config,
    *,
    networks: Agent57Networks | None = None,
    optimizer: optax.GradientTransformation | None = None,
) -> Agent:
    """Agent57 as pure functions.

    Args:
      environment_spec: discrete actions; observations that the networks take.
      config: hyper-parameters.
      networks: in place of the paper's.
      optimizer: of each value network, in place of Adam with clipped gradients.

    Raises:
      ValueError: continuous actions, or observations that the default networks cannot take.
    """
    num_actions = count_actions("Agent57", environment_spec)
    nets = networks or _make_networks(environment_spec, config, num_actions)
    heads = _HEADS[config.values]
    is_curious = config.values != "extrinsic"
    recomputes = is_curious and config.intrinsic_rewards == "recomputed"
    keeps_embedding = config.embedding_refresh == "episode"
    h = losses.signed_hyperbolic_pair(config.rescaling_epsilon)
    h = h if config.rescale else losses.IDENTITY
    high, middle, low = config.discount_high, config.discount_middle, config.discount_low
    if config.discounts == "ngu":
        discounts = families.ngu_discounts(config.num_arms, middle, low)
    else:
        discounts = families.agent57_discounts(config.num_arms, high, middle, low)
    gammas = jnp.asarray(discounts)
    betas = jnp.asarray(families.intrinsic_weights(config.num_arms, config.intrinsic_weight))

    def adam(learning_rate: float, decay: float = 0.0) -> optax.GradientTransformation:
        return optax.chain(
            optax.clip_by_global_norm(config.gradient_clip),
            optax.add_decayed_weights(decay),
            optax.adam(learning_rate, config.adam_b1, config.adam_b2, config.adam_epsilon),
        )

    of_values = optimizer or adam(config.learning_rate)
    of_auxiliary = {
        "embedding": adam(config.auxiliary_learning_rate, config.embedding_weight_decay),
        "predictor": adam(config.auxiliary_learning_rate),
    }

    def init(key: Array) -> LearnerState:
        *value_keys, auxiliary_key = jax.random.split(key, len(heads) + 1)
        params = {name: nets.value.init(k) for name, k in zip(heads, value_keys, strict=True)}
        auxiliary, random = {}, ()
        if is_curious:
            keys = jax.random.split(auxiliary_key, 4)
            auxiliary = {
                "embedding": nets.embedding.init(keys[0]),
                "classifier": nets.classifier.init(keys[1]),
                "predictor": nets.novelty.init(keys[2]),
            }
            random = nets.novelty.init(keys[3])
        return LearnerState(
            params=params,
            target_params=params,
            optimizer_states={name: of_values.init(params[name]) for name in heads},
            auxiliary_params=auxiliary,
            auxiliary_states={
                group: of_auxiliary[group].init(_part(auxiliary, group))
                for group in (_AUXILIARY if is_curious else ())
            },
            random_params=random,
            num_updates=jnp.zeros((), jnp.int32),
        )

    def acting_params(state: LearnerState) -> ActingParams:
        if not is_curious:
            return ActingParams(state.params, None)
        embedding, predictor = (state.auxiliary_params[name] for name in ("embedding", "predictor"))
        intrinsic = IntrinsicParams(embedding, predictor, state.random_params, state.num_updates)
        return ActingParams(state.params, intrinsic)

    # Actors and evaluators (appendix E).

    def begin(key: Array, actor_id: Array, num_actors: int) -> ActorState:
        intrinsic = None
        if is_curious:
            like = jax.eval_shape(nets.embedding.init, jax.random.key(0)) if keeps_embedding else ()
            embedding = jax.tree.map(jnp.zeros_like, like)
            memory = episodic_memory.init(config.episodic_capacity, config.embedding_size)
            intrinsic = IntrinsicState(memory, novelty.init(), embedding)
        return ActorState(
            key=key,
            number=jnp.asarray(actor_id, jnp.int32),
            epsilon=epsilon_of_actor(
                actor_id, num_actors, config.actor_epsilon, config.actor_epsilon_exponent
            ),
            arm=jnp.zeros((), jnp.int32),
            bandit=bandit.init(config.bandit_window),
            evaluator=EvaluatorState(
                sampled=bandit.init(config.evaluator_window),
                greedy_arm=jnp.full((), _UNKNOWN, jnp.int32),
                episodes=jnp.zeros((), jnp.int32),
            ),
            previous_action=jnp.zeros((), jnp.int32),
            memory={name: nets.value.initial_state() for name in heads},
            intrinsic=intrinsic,
            intrinsic_reward=jnp.zeros((), jnp.float32),
            extrinsic_return=jnp.zeros((), jnp.float32),
            intrinsic_return=jnp.zeros((), jnp.float32),
        )

    def extras(state: ActorState, mu: Any, epsilon: Any, episodic_reward: Any) -> dict[str, Any]:
        """Extras of a row (appendix E's transition); `state` has received the row."""
        stored = {
            "arm": state.arm,
            "previous_action": state.previous_action,
            "intrinsic_reward": state.intrinsic_reward,
            "mu": mu,
            "epsilon": epsilon,
            "intrinsic_return": state.intrinsic_return,
            "memory": state.memory,
        }
        return {**stored, "episodic_reward": episodic_reward} if recomputes else stored

    def mix(values: dict[str, Array], beta: Array) -> Array:
        """Q^e + beta_j Q^i (3.1), or h(h^-1(Q^e) + beta_j h^-1(Q^i)) (appendix B); `[..., A]`.

        It selects actions and defines the target policy. A single value is returned unchanged.
        """
        if config.values != "split":
            [value] = values.values()
            return value
        if not config.transformed_mix:
            return values["extrinsic"] + beta * values["intrinsic"]
        return h.apply(h.invert(values["extrinsic"]) + beta * h.invert(values["intrinsic"]))

    def masked(values: Array, observations: Array) -> Array:
        """The values `[T, A]`, -inf for illegal actions."""
        if not environment_spec.masks_actions:
            return values
        return jnp.where(legal_actions(observations, num_actions), values, -jnp.inf)

    def novelty_errors(predictor: Any, random: Any, observations: Array) -> Array:
        """Errors `[B]` of random network distillation."""
        predicted, target = (nets.novelty.apply(x, observations) for x in (predictor, random))
        return novelty.distillation_error(predicted, target)

    def intrinsic_reward(
        params: IntrinsicParams, state: IntrinsicState, observation: Array, is_first: Array
    ) -> tuple[Array, Array, IntrinsicState]:
        """r^i = r^episodic min(max(alpha, 1), L) (NGU, 2.2), r^episodic, and the new state.

        Like the extrinsic reward, r^i arrives with the observation, as a consequence of the
        previous action. An episode's first one is 0: the memory is empty.
        """
        embedding = params.embedding
        if keeps_embedding:
            embedding = optax.tree.where(is_first, embedding, state.embedding)
            state = state._replace(embedding=embedding)
        episodic, memory = episodic_memory.bonus(
            episodic_memory.empty(state.memory, is_first),
            nets.embedding.apply(embedding, observation[None])[0],
            num_neighbours=config.num_neighbours,
            cluster_distance=config.cluster_distance,
            kernel_epsilon=config.kernel_epsilon,
            pseudo_count=config.pseudo_count,
            max_similarity=config.max_similarity,
        )
        [error] = novelty_errors(params.predictor, params.random, observation[None])
        alpha, moments = novelty.modulator(
            state.moments, error, config.novelty_window, params.num_updates > 0
        )
        reward = novelty.intrinsic_reward(episodic, alpha, config.max_modulator)
        return reward, episodic, state._replace(memory=memory, moments=moments)

    def act(
        keys: Sequence[Array],
        params: ActingParams,
        state: ActorState,
        timestep: TimeStep,
        arm: Array,
        epsilon: Array,
    ) -> Decision:
        """Receives a time step and chooses an action; on a first step `arm` becomes the episode's.

        The keys draw the "previous" action of a first step, and the action.
        """
        is_first = timestep.step_type == StepType.FIRST
        drawn = jax.random.randint(keys[0], (), 0, num_actions, jnp.int32)
        episodic = jnp.zeros((), jnp.float32)
        if is_curious:
            reward, episodic, kept = intrinsic_reward(
                params.intrinsic, state.intrinsic, timestep.observation, is_first
            )
            state = state._replace(intrinsic_reward=reward, intrinsic=kept)
        extrinsic = state.extrinsic_return + timestep.reward
        intrinsic = state.intrinsic_return + state.intrinsic_reward
        state = state._replace(
            arm=jnp.where(is_first, arm, state.arm),
            previous_action=jnp.where(is_first, drawn, state.previous_action),
            extrinsic_return=jnp.where(is_first, 0.0, extrinsic),
            intrinsic_return=jnp.where(is_first, 0.0, intrinsic),
        )
        inputs = R2D2Inputs(
            observation=timestep.observation,
            previous_action=state.previous_action,
            reward=timestep.reward,
            intrinsic_reward=state.intrinsic_reward,
            arm=state.arm,
        )
        values, memory = {}, {}
        for name in heads:
            values[name], memory[name] = nets.value.step(
                params.values[name], inputs, is_first, state.memory[name]
            )
        mixed = mix(values, betas[state.arm])
        chex.assert_shape(mixed, (num_actions,))  # of one's own networks
        [mixed] = masked(mixed[None], timestep.observation[None])
        action, mu = epsilon_greedy(keys[1], mixed, epsilon)
        after = state._replace(previous_action=action, memory=memory)
        return Decision(action, extras(state, mu, epsilon, episodic), after)

    def pull(key: Array, pulls: BanditState, epsilon: float, first: Array | int = 0) -> Array:
        bonus, num_arms = config.bandit_bonus, config.num_arms
        return bandit.choose(
            key, pulls, num_arms=num_arms, bonus=bonus, epsilon=epsilon, first=first
        )

    def arm_of_actor(key: Array, state: ActorState) -> Array:
        """The arm of an actor's next episode, int32 `[]`; see `Config.arm_choice`."""
        if config.arm_choice == "bandit":
            return pull(key, state.bandit, config.bandit_epsilon)
        if config.arm_choice == "uniform":
            return jax.random.randint(key, (), 0, config.num_arms, jnp.int32)
        return state.number % config.num_arms if config.arm_choice == "actor" else jnp.int32(0)

    def arm_of_evaluator(key: Array, state: ActorState) -> tuple[Array, Array]:
        """The arm of an evaluator's next episode, and whether the episode is of the greedy mode.

        Modes alternate every five episodes; evaluators with an even number begin with the greedy
        one. The greedy arm is the best one by the actors' pulls, or, if none are known, by the
        evaluator's own sampled pulls. The sampled arm is the bandit's by the sampled pulls alone;
        it tries each arm once first, from arm `number // 2` on, so that parallel evaluators which
        begin with the sampled mode try all arms.
        """
        if config.evaluation == "arm":
            return jnp.int32(config.evaluation_arm), jnp.array(True)
        sampled, greedy_arm, episodes = state.evaluator
        own = bandit.best(sampled, config.num_arms)
        greedy = jnp.where(greedy_arm == _UNKNOWN, own, greedy_arm)
        if config.evaluation == "greedy":
            return greedy, jnp.array(True)
        is_greedy = (state.number + episodes // _EPISODES_OF_A_MODE) % 2 == 0
        drawn = pull(key, sampled, config.evaluator_epsilon, first=state.number // 2)
        return jnp.where(is_greedy, greedy, drawn), is_greedy

    def explore(params: ActingParams, state: ActorState, timestep: TimeStep) -> Decision:
        """One time step of an actor: the arm of its own bandit, epsilon_l-greedy actions."""
        key, arm_key, *keys = jax.random.split(state.key, 4)
        arm = arm_of_actor(arm_key, state)
        decision = act(keys, params, state._replace(key=key), timestep, arm, state.epsilon)
        state = decision.state
        pulls = bandit.update(state.bandit, state.arm, state.extrinsic_return)
        pulls = optax.tree.where(timestep.step_type == StepType.LAST, pulls, state.bandit)
        return decision._replace(state=state._replace(bandit=pulls))

    def exploit(params: ActingParams, state: ActorState, timestep: TimeStep) -> Decision:
        """One time step of an evaluator: the arm of its own bandit, a small epsilon."""
        key, arm_key, *keys = jax.random.split(state.key, 4)
        arm, is_greedy = arm_of_evaluator(arm_key, state)
        epsilon = jnp.float32(config.evaluation_epsilon)
        decision = act(keys, params, state._replace(key=key), timestep, arm, epsilon)
        state, before = decision.state, decision.state.evaluator
        pulls = bandit.update(before.sampled, state.arm, state.extrinsic_return)
        pulls = optax.tree.where(~is_greedy, pulls, before.sampled)
        ended = before._replace(sampled=pulls, episodes=before.episodes + 1)
        evaluator = optax.tree.where(timestep.step_type == StepType.LAST, ended, before)
        modes = {"greedy_arm": is_greedy, "sampled_arm": ~is_greedy}
        state = state._replace(evaluator=evaluator)
        return Decision(decision.action, {**decision.extras, **modes}, state)

    # The learner (appendix E).

    def learned_rewards(state: LearnerState, sample: Sample) -> Array:
        """The intrinsic rewards that are learned from, `[B, T + 1]`; see `intrinsic_rewards`.

        The predictor takes no gradient here.
        """
        stored = sample.rows.extras
        if not recomputes:
            return stored["intrinsic_reward"]
        observations = sample.rows.observation
        flat = jnp.reshape(observations, (-1, *observations.shape[2:]))
        errors = novelty_errors(state.auxiliary_params["predictor"], state.random_params, flat)
        alpha = novelty.batch_modulators(errors.reshape(sample.mask.shape), sample.mask)
        return novelty.intrinsic_reward(stored["episodic_reward"], alpha, config.max_modulator)

    def unroll(params: Any, rows: Row, memory: Any) -> Array:
        """Values `[T + 1, A]`; no gradient flows into the memory after the burn-in."""
        inputs = R2D2Inputs(
            observation=rows.observation,
            previous_action=rows.extras["previous_action"],
            reward=rows.reward,
            intrinsic_reward=rows.extras["intrinsic_reward"],
            arm=rows.extras["arm"],
        )
        if not config.burn_in:
            return nets.value.unroll(params, inputs, rows.is_first, memory)[0]
        warm = jax.tree.map(lambda x: x[: config.burn_in], (inputs, rows.is_first))
        rest = jax.tree.map(lambda x: x[config.burn_in :], (inputs, rows.is_first))
        before, memory = nets.value.unroll(params, warm[0], warm[1], memory)
        after, _ = nets.value.unroll(params, rest[0], rest[1], jax.lax.stop_gradient(memory))
        return jnp.concatenate([before, after])

    def steps(
        params: Any, target_params: Any, rows: Row, mask: Array, intrinsic_rewards: Array
    ) -> dict[str, Any]:
        """TD errors and metrics of the source steps of one sequence `[T + 1, ...]`, each `[T]`.

        Every network has its own reward and its own target network. All share one target policy,
        greedy in the mix of the online networks.
        """
        arm, memory = rows.extras["arm"][0], rows.extras["memory"]
        beta, a_t = betas[arm], rows.action[1:]
        q, q_target = (
            {name: unroll(part[name], rows, memory[name]) for name in heads}
            for part in (params, target_params)
        )
        mixed_t = jax.lax.stop_gradient(masked(mix(q, beta), rows.observation))[1:]
        pi_t = epsilon_greedy_probabilities(mixed_t, config.target_epsilon)
        acted = sequences.acted(rows, mask)
        if config.target == "double_q":  # which needs no ratios
            c_t, ratio = acted.astype(jnp.float32), jnp.ones(acted.shape)
        else:
            mu_a = jnp.where(acted, rows.extras["mu"][1:], 1.0)
            pi_a = sequences.taken(pi_t, a_t)
            c_t = acted * losses.retrace_coefficients(pi_a, mu_a, config.retrace_lambda)
            ratio = pi_a / mu_a
        extrinsic_t, intrinsic_t = sequences.rewards(rows), intrinsic_rewards[1:]
        r_t = {
            "extrinsic": extrinsic_t,
            "intrinsic": intrinsic_t,
            "mixed": extrinsic_t + beta * intrinsic_t,
        }
        discount_t = sequences.discounts(rows, gammas[arm])

        def target(name: str) -> Array:
            q_t = q_target[name][1:]
            if config.target == "double_q":
                return losses.transformed_n_step_double_q_return(
                    q_t, mixed_t, r_t[name], discount_t, c_t, config.n_step, h
                )
            return losses.transformed_off_policy_return(
                q_t, a_t, r_t[name], discount_t, pi_t, c_t, h
            )

        taken = {name: sequences.taken(q[name][:-1], rows.action[:-1]) for name in heads}
        errors = {name: target(name) - taken[name] for name in heads}
        # A sequence that begins with its episode has the exact memory without burn-in.
        is_trace = (jnp.arange(mask.shape[0] - 1) >= config.burn_in) | rows.is_first[0]
        return {
            "td_errors": errors,
            "values": taken,
            "mixed_error": errors[heads[0]] + sum(beta * errors[name] for name in heads[1:]),
            "trace": c_t,
            "ratio": ratio,
            "valid": sequences.valid_steps(rows, mask) & is_trace,
        }

    def value_loss(
        params: Any, target_params: Any, sample: Sample, intrinsic_rewards: Array
    ) -> tuple[Array, Update]:
        """sum_s (Q(x_s, a_s, j) - T Q(x_s, a_s, j))^2 of each network (appendix E).

        Summed over the steps of a sequence; the weighted mean over the batch. No network's loss
        depends on another's parameters, so the gradient of the sum is each network's own.
        """
        each = jax.vmap(steps, in_axes=(None, None, 0, 0, 0))(
            params, target_params, sample.rows, sample.mask, intrinsic_rewards
        )
        valid = each["valid"]
        priorities = jax.vmap(losses.sequence_priority, in_axes=(0, 0, None))(
            each["mixed_error"], valid, config.priority_eta
        )
        total, metrics = jnp.zeros(()), {}
        for name in heads:
            squares = jnp.where(valid, jnp.square(each["td_errors"][name]), 0.0)
            total += jnp.mean(sample.weights * jnp.sum(squares, axis=1))
            metrics[f"{name}_loss"] = sequences.masked_mean(squares, valid)
            metrics[f"{name}_value"] = sequences.masked_mean(each["values"][name], valid)
        metrics |= {
            "trace_coefficient": sequences.masked_mean(each["trace"], valid),
            "intrinsic_reward": sequences.masked_mean(intrinsic_rewards[:, 1:], valid),
            "intrinsic_weight": jnp.mean(betas[sample.rows.extras["arm"][:, 0]]),
            "priority": jnp.mean(priorities),
        }
        if config.target != "double_q":
            acted = sequences.acted(sample.rows, sample.mask) & valid
            metrics |= sequences.off_policyness(each["ratio"], acted)
        return total, Update(priorities, metrics)

    def auxiliary_loss(
        params: dict[str, Any], random_params: Any, sample: Sample
    ) -> tuple[Array, dict[str, Array]]:
        """Losses that train embedding and predictor (NGU, 2.2), averaged over the batch.

        -log p(a_t | x_t, x_{t+1}) and || g_hat(x_{t+1}) - g(x_{t+1}) ||^2, means over the last
        transitions of each sequence (NGU, appendix A: five), without padding.
        """

        def each(rows: Row, mask: Array) -> tuple[Array, Array]:
            last = jnp.sum(mask.astype(jnp.int32)) - 1
            after = last - jnp.arange(config.auxiliary_frames - 1, -1, -1)
            exists, after = after >= 1, jnp.maximum(after, 1)
            before, seen = rows.observation[after - 1], rows.observation[after]
            embedded = (nets.embedding.apply(params["embedding"], x) for x in (before, seen))
            logits = nets.classifier.apply(params["classifier"], *embedded)
            dynamics = optax.losses.softmax_cross_entropy_with_integer_labels(
                logits, rows.action[after - 1]
            )
            error = novelty_errors(params["predictor"], random_params, seen)
            return sequences.masked_mean(dynamics, exists), sequences.masked_mean(error, exists)

        dynamics, distillation = jax.vmap(each)(sample.rows, sample.mask)
        metrics = {"embedding_loss": jnp.mean(dynamics), "novelty_loss": jnp.mean(distillation)}
        return metrics["embedding_loss"] + metrics["novelty_loss"], metrics

    def gradients(state: LearnerState, sample: Sample) -> tuple[dict[str, Any], Update]:
        """Of both losses, by the names of the networks."""
        values, update = jax.grad(value_loss, has_aux=True)(
            state.params, state.target_params, sample, learned_rewards(state, sample)
        )
        metrics = update.metrics
        for name in heads:
            metrics |= gradient_metrics(values[name], f"{name}_")
        if not is_curious:
            return values, update._replace(metrics=metrics)
        auxiliary, others = jax.grad(auxiliary_loss, has_aux=True)(
            state.auxiliary_params, state.random_params, sample
        )
        return values | auxiliary, update._replace(metrics=metrics | others)

    def apply(state: LearnerState, grads: dict[str, Any]) -> LearnerState:
        params, optimizer_states = {}, {}
        for name in heads:
            params[name], optimizer_states[name] = descend(
                of_values, grads[name], state.optimizer_states[name], state.params[name]
            )
        auxiliary_params, auxiliary_states = dict(state.auxiliary_params), {}
        for group in state.auxiliary_states:
            changed, auxiliary_states[group] = descend(
                of_auxiliary[group],
                _part(grads, group),
                state.auxiliary_states[group],
                _part(auxiliary_params, group),
            )
            auxiliary_params |= changed
        num_updates = state.num_updates + 1
        return LearnerState(
            params=params,
            target_params=optax.periodic_update(
                params, state.target_params, num_updates, config.target_update_period
            ),
            optimizer_states=optimizer_states,
            auxiliary_params=auxiliary_params,
            auxiliary_states=auxiliary_states,
            random_params=state.random_params,
            num_updates=num_updates,
        )

    actor = jax.eval_shape(lambda: begin(jax.random.key(0), jnp.int32(0), 1))
    number = jax.ShapeDtypeStruct((), jnp.float32)
    return Agent(
        init=init,
        acting_params=acting_params,
        begin=begin,
        explore=explore,
        exploit=exploit,
        gradients=gradients,
        apply=apply,
        sequence=SequenceSpec(
            length=config.sequence_length,
            period=config.replay_period,
            crosses_episodes=False,
            extras=extras(actor, number, number, number),
            first_row_extras=("memory",),
        ),
    )


def warm_start(evaluator: ActorState, actors: ActorState) -> ActorState:
    """`AgentEntry.warm_start`: the best arm by all actors' pulls, and an actor's novelty moments.

    The greedy arm stays the same: episodes of neither mode change it. The networks read intrinsic
    rewards, which must have the same scale in an evaluation as in training: evaluator e starts with
    the moments of the actor e modulo E.
    """
    is_known = jnp.any(actors.bandit.num_pulls > 0)
    greedy = jnp.where(is_known, bandit.best_of_all(actors.bandit), _UNKNOWN)
    evaluator = evaluator._replace(evaluator=evaluator.evaluator._replace(greedy_arm=greedy))
    if actors.intrinsic is None:
        return evaluator
    actor = evaluator.number % actors.number.shape[0]
    moments = jax.tree.map(lambda x: x[actor], actors.intrinsic.moments)
    return evaluator._replace(intrinsic=evaluator.intrinsic._replace(moments=moments))


def _make_networks(
    environment_spec: EnvironmentSpec, config: Config, num_actions: int
) -> Agent57Networks:
    def scaled(size: int) -> int:
        return max(1, round(config.network_scale * size))

    observation = environment_spec.observations
    convolutions = choose_convolutions(observation, config.convolutions)
    return make_agent57_networks(
        observation,
        num_actions=num_actions,
        num_arms=config.num_arms,
        convolutions=tuple((scaled(n), k, stride) for n, k, stride in convolutions),
        vector_sizes=tuple(map(scaled, config.vector_sizes)),
        torso_size=scaled(config.torso_size),
        lstm_size=scaled(config.lstm_size),
        head_size=scaled(config.head_size),
        recurrent=config.recurrent,
        embedding_size=config.embedding_size,
        classifier_size=scaled(config.classifier_size),
        novelty_size=scaled(config.novelty_size),
        orthogonal_gain=config.orthogonal_gain,
    )


def _part(networks: dict[str, Any], group: str) -> dict[str, Any]:
    return {name: networks[name] for name in _AUXILIARY[group]}
