"""Slow, obvious NumPy definitions that the fast code is tested against.

Everything here is float64, loops over time and actions one by one, and shares no code with the
package. One section for each module of the package.
"""

import numpy as np

# replay/tree.py


def priority_tree_estimates(present, priorities):
    """Estimated priorities `[capacity]` by recursion over a balanced tree with slots at its leaves.

    `present` is bool and `priorities` float, NaN where unknown. Absent slots get NaN; where nothing
    is known, every present one gets 1.
    """
    width = 1
    while width < len(present):
        width *= 2

    def summary(low, high):
        """(count of present slots, mean priority or None) of slots low to high - 1."""
        if low >= len(present):
            return 0, None
        if high - low == 1:
            known = present[low] and not np.isnan(priorities[low])
            return int(present[low]), (priorities[low] if known else None)
        middle = (low + high) // 2
        parts = [summary(low, middle), summary(middle, high)]
        known_parts = [(count, mean) for count, mean in parts if mean is not None]
        weight = sum(count for count, _ in known_parts)
        mean = sum(count * mean for count, mean in known_parts) / weight if weight else None
        return sum(count for count, _ in parts), mean

    estimates = np.full(len(present), np.nan)

    def fill(low, high, inherited):
        count, mean = summary(low, high)
        if count == 0:
            return
        mean = inherited if mean is None else mean
        if high - low == 1:
            estimates[low] = mean
            return
        fill(low, (low + high) // 2, mean)
        fill((low + high) // 2, high, mean)

    fill(0, width, 1.0)
    return estimates


def priority_tree_probabilities(present, priorities):
    """Probabilities `[capacity]`: estimates, normalised; uniform where they are all 0."""
    estimates = np.where(present, priority_tree_estimates(present, priorities), 0.0)
    if estimates.sum() == 0:
        estimates = np.asarray(present, np.float64)
    return estimates / estimates.sum()


def partition_estimates(cell_of, priorities, collection_of):
    """Estimates by the paper's definition, for a partition in cells of one known priority each.

    `cell_of[t]` is the cell of slot t, `collection_of[i]` the collection J of cells around cell i;
    `priorities` is NaN where unknown. Estimate: the mean of the priorities known in J, weighted by
    the lengths of their cells.
    """
    estimates = np.array(priorities, np.float64)
    known_slots = [t for t in range(len(priorities)) if not np.isnan(priorities[t])]
    for t in range(len(priorities)):
        if t in known_slots:
            continue
        total, weights = 0.0, 0
        for s in known_slots:
            if collection_of[cell_of[s]] == collection_of[cell_of[t]]:
                length = sum(cell == cell_of[s] for cell in cell_of)
                total, weights = total + length * priorities[s], weights + length
        estimates[t] = total / weights
    return estimates


# losses/off_policy.py


def n_step_alphas(pi_t, a_t, c_t, source):
    """Coefficients alpha_{n,a} of one source step (Reactor, section 3.2): n -> [A]."""
    horizon = len(a_t)
    c_t = [float(c) for c in c_t]
    c_t[-1] = 0.0
    alphas = {}
    trace = 1.0
    for destination in range(source, horizon):
        alpha = [float(p) for p in pi_t[destination]]
        alpha[a_t[destination]] -= c_t[destination]
        alphas[destination - source + 1] = trace * np.array(alpha)
        trace *= c_t[destination]
    return alphas


def linear_interpolation_kernel(atoms, i, x):
    """h_{z_i}(x): the share of a mass at x that atom i gets."""
    last = len(atoms) - 1
    if i == 0 and x <= atoms[0]:
        return 1.0
    if i == last and x >= atoms[last]:
        return 1.0
    if i > 0 and atoms[i - 1] <= x <= atoms[i]:
        return (x - atoms[i - 1]) / (atoms[i] - atoms[i - 1])
    if i < last and atoms[i] <= x <= atoms[i + 1]:
        return (atoms[i + 1] - x) / (atoms[i + 1] - atoms[i])
    return 0.0


def distributional_off_policy_target(atoms, q_t, a_t, r_t, discount_t, pi_t, c_t):
    """q*_i by the three sums of Reactor, section 3.2, one term at a time."""
    horizon, num_actions, num_atoms = np.shape(q_t)
    target = np.zeros((horizon, num_atoms))
    for source in range(horizon):
        alphas = n_step_alphas(pi_t, a_t, c_t, source)
        rewards, discount = 0.0, 1.0
        for n in range(1, horizon - source + 1):
            destination = source + n - 1
            rewards += discount * float(r_t[destination])
            discount *= float(discount_t[destination])
            for a in range(num_actions):
                for j in range(num_atoms):
                    mass = alphas[n][a] * float(q_t[destination][a][j])
                    for i in range(num_atoms):
                        share = linear_interpolation_kernel(
                            atoms, i, rewards + discount * float(atoms[j])
                        )
                        target[source, i] += mass * share
    return target


def expected_off_policy_return(q_t, a_t, r_t, discount_t, pi_t, c_t):
    """Q + Delta Q as a sum of corrected TD errors (Munos et al. 2016, eq. 3), not a recursion.

    The value at the source step cancels, so any number may stand for it; 0 does.
    """
    horizon = len(r_t)
    returns = np.zeros(horizon)
    for source in range(horizon):
        q_now, weight = 0.0, 1.0
        for s in range(source, horizon):
            expected = sum(float(p) * float(q) for p, q in zip(pi_t[s], q_t[s], strict=True))
            delta = float(r_t[s]) + float(discount_t[s]) * expected - q_now
            returns[source] += weight * delta
            weight *= float(discount_t[s]) * float(c_t[s])
            q_now = float(q_t[s][a_t[s]])
    return returns


# losses/policy_gradient.py: estimators as vectors, given grad pi(a) for each action, [A, P].


def leave_one_out(grad_pi, q, a, return_):
    """Reactor, section 3.1, eq. 9."""
    others = sum(q[b] * grad_pi[b] for b in range(len(q)) if b != a)
    return return_ * grad_pi[a] + others


def beta_leave_one_out(grad_pi, q, a, return_, beta):
    """Reactor, section 3.1, eq. 10."""
    return beta * (return_ - q[a]) * grad_pi[a] + sum(q[b] * grad_pi[b] for b in range(len(q)))


def islr(grad_pi, pi, mu, v, a, return_):
    """Reactor, section 3.1: the importance-sampled likelihood ratio."""
    return pi[a] / mu[a] * (return_ - v) * grad_pi[a] / pi[a]


def tislr(grad_pi, pi, mu, q, v, a, return_, c):
    """Reactor, section 3.1: the truncated one, with its correction over all actions."""
    estimate = min(c, pi[a] / mu[a]) * (return_ - v) * grad_pi[a] / pi[a]
    for b in range(len(pi)):
        excess = max(pi[b] / mu[b] - c, 0.0)
        estimate = estimate + excess * mu[b] * (q[b] - v) * grad_pi[b] / pi[b]
    return estimate


def proposition_1(grad_pi, q, q_pi, mu, beta):
    """Bias of beta-LOO: sum_a (1 - mu(a) beta(a)) grad pi(a) (Q(a) - Q^pi(a))."""
    return sum((1.0 - mu[b] * beta[b]) * grad_pi[b] * (q[b] - q_pi[b]) for b in range(len(q)))


# agents/reactor


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def reactor_linear_update(params, target_params, rows, weights, config, learning_rate):
    """One SGD step of Reactor on a linear network, gradients by hand, one row at a time.

    params: `policy` [D, A] and `value` [D, A, N]; pi = (1 - eps) softmax(x policy) + eps / A.
    rows: arrays [B, T+1, ...] with keys observation [.., D], reward, discount, is_last, action, mu.
    config: a dictionary. Returns new params and priorities [B].
    """
    atoms = np.linspace(config["vmin"], config["vmax"], config["num_atoms"])
    batch, length = rows["action"].shape
    horizon, num_actions = length - 1, params["policy"].shape[1]
    grads = {name: np.zeros_like(value) for name, value in params.items()}
    priorities = np.zeros(batch)

    def policy_of(weights, x):
        eps = config["policy_epsilon"]
        return (1 - eps) * _softmax(x @ weights["policy"]) + eps / num_actions

    def probs_of(weights, x):
        return _softmax(np.einsum("d,dan->an", x, weights["value"]))

    for b in range(batch):
        x = rows["observation"][b]
        pi_t = np.array([policy_of(target_params, x[d]) for d in range(1, length)])
        q_t = np.array([probs_of(target_params, x[d]) for d in range(1, length)])
        a_t = rows["action"][b, 1:]
        c_t = np.zeros(horizon)
        for d in range(1, length):
            a = rows["action"][b, d]
            if not rows["is_last"][b, d]:
                ratio = pi_t[d - 1, a] / rows["mu"][b, d, a]
                c_t[d - 1] = config["retrace_lambda"] * min(1.0, ratio)
        clip = config["max_abs_reward"]
        q_star = distributional_off_policy_target(
            atoms,
            q_t,
            a_t,
            np.clip(rows["reward"][b, 1:], -clip, clip),
            config["discount"] * rows["discount"][b, 1:],
            pi_t,
            c_t,
        )
        errors = []
        for s in range(horizon):
            if rows["is_last"][b, s]:
                continue
            a, mu = rows["action"][b, s], rows["mu"][b, s]
            probs, pi = probs_of(params, x[s]), policy_of(params, x[s])
            errors.append(0.5 * np.abs(q_star[s] - probs[a]).sum())
            scale = weights[b] / (batch * horizon)
            grads["value"][:, a] += scale * np.outer(x[s], probs[a] - q_star[s])
            p = _softmax(x[s] @ params["policy"])
            grad_pi = (1 - config["policy_epsilon"]) * (np.diag(p) - np.outer(p, p))
            q, return_ = probs @ atoms, q_star[s] @ atoms
            if config["policy_gradient"] == "beta_loo":
                beta = min(config["policy_gradient_cap"], 1 / mu[a])
                estimate = beta_leave_one_out(grad_pi, q, a, return_, beta)
            elif config["policy_gradient"] == "islr":
                estimate = islr(grad_pi, pi, mu, pi @ q, a, return_)
            else:
                cap = config["policy_gradient_cap"]
                estimate = tislr(grad_pi, pi, mu, q, pi @ q, a, return_, cap)
            entropy = -sum((np.log(pi[k]) + 1) * grad_pi[k] for k in range(num_actions))
            ascent = estimate + config["entropy_cost"] * entropy
            grads["policy"] -= scale * np.outer(x[s], ascent)
        priorities[b] = np.mean(errors) if errors else 0.0
    return {name: params[name] - learning_rate * grads[name] for name in params}, priorities


# losses/continuous.py


def n_step_return(r_t, discount_t):
    """(sum of discounted rewards, product of discounts), step by step."""
    total, discount = 0.0, 1.0
    for reward, step_discount in zip(r_t, discount_t, strict=True):
        total += discount * float(reward)
        discount *= float(step_discount)
    return total, discount


def projected(atoms, return_, discount, probs):
    """D4PG, appendix B: (Phi p)_i = sum_j h_{z_i}(return + discount z_j) p_j."""
    return np.array(
        [
            sum(
                linear_interpolation_kernel(atoms, i, return_ + discount * float(z)) * float(p)
                for z, p in zip(atoms, probs, strict=True)
            )
            for i in range(len(atoms))
        ]
    )


def categorical_td_loss(atoms, logits, return_, discount, probs):
    """Cross-entropy of the softmax with the projected target."""
    predicted = _softmax(np.asarray(logits, np.float64))
    return -float(projected(atoms, return_, discount, probs) @ np.log(predicted))


def mixture_log_density(x, logits, means, scales):
    """log sum_k w_k N(x; mean_k, scale_k), by the largest term and the others against it."""
    weights = _softmax(np.asarray(logits, np.float64))
    terms = [
        np.log(w) - 0.5 * ((x - m) / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)
        for w, m, s in zip(weights, map(float, means), map(float, scales), strict=True)
    ]
    largest = max(terms)
    return largest + np.log(sum(np.exp(term - largest) for term in terms))


# agents/d4pg


def mixture_parts(outputs, min_scale, unit):
    """Weights, means, scales and the scales' slopes of `[3 K]` outputs."""
    logits, means, raw = np.split(np.asarray(outputs, np.float64), 3)
    scales = unit * np.log1p(np.exp(raw)) + min_scale
    return _softmax(logits), unit * means, scales, unit / (1 + np.exp(-raw))


def d4pg_critic(outputs, return_, discount, outputs_t, config, samples):
    """Loss, its gradient `[P]`, mean and the mean's gradient `[P]` of one critic's outputs.

    `samples` are the mixture's, of the bootstrap before it is shifted; others do not need them.
    """
    outputs, unit = np.asarray(outputs, np.float64), config["return_unit"]
    if config["critic"] == "scalar":
        error = unit * outputs[0] - (return_ + discount * unit * outputs_t[0])
        return 0.5 * error**2, np.array([unit * error]), unit * outputs[0], np.full(1, unit)
    if config["critic"] == "categorical":
        atoms = np.linspace(config["vmin"], config["vmax"], config["num_atoms"])
        target = projected(atoms, return_, discount, _softmax(np.asarray(outputs_t, np.float64)))
        probs = _softmax(outputs)
        mean = probs @ atoms
        return -target @ np.log(probs), probs - target, mean, probs * (atoms - mean)
    weights, means, scales, slopes = mixture_parts(outputs, config["mixture_min_scale"], unit)
    loss, gradient = 0.0, np.zeros_like(outputs)
    for sample in samples:
        y = return_ + discount * float(sample)
        densities = weights * np.exp(-0.5 * ((y - means) / scales) ** 2) / scales
        share = densities / densities.sum()  # of each component in the density at y
        by_mean = -share * (y - means) / scales**2
        by_scale = share * (1 / scales - (y - means) ** 2 / scales**3)
        loss -= np.log(densities.sum() / np.sqrt(2 * np.pi)) / len(samples)
        gradient += np.concatenate([weights - share, unit * by_mean, by_scale * slopes]) / len(
            samples
        )
    mean = weights @ means
    by_outputs = np.concatenate([weights * (means - mean), unit * weights, np.zeros_like(means)])
    return loss, gradient, mean, by_outputs


def d4pg_linear_update(params, target, rows, mask, weights, config, samples, rates):
    """One SGD step of D4PG (Algorithm 1) on linear networks, one window at a time.

    params: `policy` [D, A], `critic_x` [D, P], `critic_a` [A, P]: pi(x) = x policy, outputs =
    x critic_x + a critic_a. rows: arrays [B, N + 1, ...]; mask [B, N + 1]; samples [B, S];
    rates: (policy's, critic's). Returns new params, losses [B] and values of the policy [B].
    """
    grads = {name: np.zeros_like(value) for name, value in params.items()}
    batch, length = mask.shape
    losses, values = [], []
    for b in range(batch):
        return_, discount, last = 0.0, 1.0, 0
        for t in range(1, length):
            if mask[b, t]:
                return_ += discount * float(rows["reward"][b, t])
                discount *= config["discount"] * float(rows["discount"][b, t])
                last = t
        x_t = rows["observation"][b, last].astype(np.float64)
        outputs_t = x_t @ target["critic_x"] + (x_t @ target["policy"]) @ target["critic_a"]
        x, a = (rows[name][b, 0].astype(np.float64) for name in ("observation", "action"))
        outputs = x @ params["critic_x"] + a @ params["critic_a"]
        loss, gradient, _, _ = d4pg_critic(
            outputs, return_, discount, outputs_t, config, samples[b]
        )
        losses.append(loss)
        grads["critic_x"] += weights[b] / batch * np.outer(x, gradient)
        grads["critic_a"] += weights[b] / batch * np.outer(a, gradient)
        outputs = x @ params["critic_x"] + (x @ params["policy"]) @ params["critic_a"]
        _, _, value, by_outputs = d4pg_critic(outputs, 0.0, 1.0, outputs, config, [0.0])
        values.append(value)
        dq_da = params["critic_a"] @ by_outputs
        longest = config["max_action_gradient_norm"]
        if longest is not None:
            dq_da = dq_da * min(1.0, longest / np.linalg.norm(dq_da))
        grads["policy"] -= np.outer(x, dq_da) / batch
    rate = {"policy": rates[0], "critic_x": rates[1], "critic_a": rates[1]}
    new = {name: params[name] - rate[name] * grads[name] for name in params}
    return new, np.array(losses), np.array(values)


# networks/torsos.py, networks/memory.py


def valid_convolution(image, weights, biases, stride):
    """`image` [H, W, C], `weights` [k, k, C, D], `biases` [D]: only where the kernel fits."""
    kernel = weights.shape[0]
    height = (image.shape[0] - kernel) // stride + 1
    width = (image.shape[1] - kernel) // stride + 1
    result = np.zeros((height, width, weights.shape[3]))
    for i in range(height):
        for j in range(width):
            top, left = i * stride, j * stride
            patch = image[top : top + kernel, left : left + kernel].astype(np.float64)
            for channel in range(weights.shape[3]):
                result[i, j, channel] = np.sum(patch * weights[..., channel]) + biases[channel]
    return result


def concatenated_relu(x):
    """`[..., D] -> [..., 2 D]`: the positive parts, then the sizes of the negative ones."""
    return np.concatenate([np.maximum(x, 0.0), np.maximum(-x, 0.0)], axis=-1)


def image_features(image, layers):
    """uint8 image `[H, W, C]` -> `[D]`; `layers` is a list of (weights, biases, stride)."""
    features = image.astype(np.float64) / 255.0
    for weights, biases, stride in layers:
        features = concatenated_relu(valid_convolution(features, weights, biases, stride))
    return features.reshape(-1)


def lstm(inputs, is_first, hidden, cell, weights, biases):
    """Outputs `[T, H]` and the last (hidden, cell), `[H]` each; zeros where `is_first`.

    `weights` [D + H, 4 H] and `biases` [4 H] give input gate, candidate, forget gate and output
    gate; 1 is added to the forget gate (Jozefowicz et al. 2015).
    """

    def sigmoid(x):
        return 1.0 / (1.0 + np.exp(-x))

    outputs = []
    for x, first in zip(inputs, is_first, strict=True):
        if first:
            hidden, cell = np.zeros_like(hidden), np.zeros_like(cell)
        gates = np.concatenate([x, hidden]).astype(np.float64) @ weights + biases
        entry, candidate, forget, output = np.split(gates, 4)
        cell = sigmoid(forget + 1.0) * cell + sigmoid(entry) * np.tanh(candidate)
        hidden = sigmoid(output) * np.tanh(cell)
        outputs.append(hidden)
    return np.array(outputs), (hidden, cell)


# evaluation/atari57


def worst_tied_mean_ranks(scores):
    """`[A]` out of `[A][G]`: one place behind all that scored more, and behind all others tied."""
    ranks = []
    for mine, row in enumerate(scores):
        places = []
        for game, score in enumerate(row):
            ahead = [
                other
                for other in range(len(scores))
                if scores[other][game] > score or (other != mine and scores[other][game] == score)
            ]
            places.append(1 + len(ahead))
        ranks.append(sum(places) / len(places))
    return np.array(ranks)


def wins_with_half_ties(scores):
    """`[A, A]` out of `[A][G]`, game by game."""
    wins = np.zeros((len(scores), len(scores)))
    for i, mine in enumerate(scores):
        for j, theirs in enumerate(scores):
            for a, b in zip(mine, theirs, strict=True):
                if i != j:
                    wins[i, j] += 1.0 if a > b else 0.5 if a == b else 0.0
    return wins


def elo_by_minorisation(wins, anchor, iterations=20_000):
    """Bradley-Terry strengths by Hunter's (2004) fixed point, as Elo ratings `[A]`.

    Each strength becomes its wins over the sum of (games between i and j) / (its strength + j's).
    """
    count = len(wins)
    strength = np.ones(count)
    for _ in range(iterations):
        for i in range(count):
            others = [j for j in range(count) if j != i]
            weight = sum((wins[i, j] + wins[j, i]) / (strength[i] + strength[j]) for j in others)
            strength[i] = sum(wins[i, j] for j in others) / weight
        strength /= strength[anchor]
    return 400.0 * np.log10(strength / strength[anchor])


def quartiles_cut_mean(values):
    """The mean of what is left when the lowest and highest quarter of a list are taken away."""
    values = sorted(values)
    cut = len(values) // 4
    kept = values[cut : len(values) - cut]
    return sum(kept) / len(kept)


# environments/shrinking.py


def area_weights(size, smaller):
    """`[smaller, size]`: the part of each old pixel that lies in each new one, as a mean."""
    weights, scale = np.zeros((smaller, size)), size / smaller
    for new in range(smaller):
        for old in range(size):
            overlap = min(old + 1, (new + 1) * scale) - max(old, new * scale)
            weights[new, old] = max(0.0, overlap) / scale
    return weights
