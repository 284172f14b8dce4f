"""Slow, obvious NumPy definitions that the fast code is tested against.

Everything here is float64, loops over time and actions one by one, and shares no code with the
package. One section for each module of the package.
"""

import jax
import numpy as np

# replay/selectors.py


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


def expected_off_policy_return(q_t, a_t, r_t, discount_t, pi_t, c_t, eps=None):
    """Q + Delta Q as a sum of corrected TD errors (Munos et al. 2016, eq. 3), not a recursion.

    The value at the source step cancels, so any number may stand for it; 0 does. With `eps` values
    are h^-1(Q), and the result is h of the sum (NGU, appendix E).
    """
    horizon = len(r_t)
    q_t = [[signed_hyperbolic_inverse(float(q), eps) if eps else float(q) for q in x] for x in q_t]
    returns = np.zeros(horizon)
    for source in range(horizon):
        q_now, weight = 0.0, 1.0
        for s in range(source, horizon):
            expected = sum(float(p) * q for p, q in zip(pi_t[s], q_t[s], strict=True))
            delta = float(r_t[s]) + float(discount_t[s]) * expected - q_now
            returns[source] += weight * delta
            weight *= float(discount_t[s]) * float(c_t[s])
            q_now = q_t[s][a_t[s]]
    return signed_hyperbolic(returns, eps) if eps else returns


# losses/policy_gradient.py: estimators as vectors, given grad pi(a) for each action, [A, P].


def beta_leave_one_out(grad_pi, q, a, return_, beta):
    """Reactor, section 3.1, eq. 10."""
    return beta * (return_ - q[a]) * grad_pi[a] + sum(q[b] * grad_pi[b] for b in range(len(q)))


def islr(grad_pi, pi, mu, v, a, return_):
    """Reactor, section 3.1: the importance-sampled likelihood ratio."""
    return pi[a] / mu[a] * (return_ - v) * grad_pi[a] / pi[a]


def tislr(grad_pi, pi, mu, q, v, a, return_, c):
    """Reactor, section 3.1: the truncated one, with its correction over all actions."""
    estimate = min(c, pi[a] / mu[a]) * (return_ - v) * grad_pi[a] / pi[a]
    for b in np.flatnonzero(pi):
        excess = max(pi[b] / mu[b] - c, 0.0)
        estimate = estimate + excess * mu[b] * (q[b] - v) * grad_pi[b] / pi[b]
    return estimate


def proposition_1(grad_pi, q, q_pi, mu, beta):
    """Bias of beta-LOO: sum_a (1 - mu(a) beta(a)) grad pi(a) (Q(a) - Q^pi(a))."""
    return sum((1.0 - mu[b] * beta[b]) * grad_pi[b] * (q[b] - q_pi[b]) for b in range(len(q)))


# losses/acer.py: the pseudo-code of ACER's appendix A, corrected.
#
# Rows 0 .. k; `r[i]`, `discount[i]` arrived with row i: the pseudo-code's r_i is `r[i + 1]`. A
# row with `is_last` ends an episode: nothing is done there, and behind it another one begins.


def trust_region(g, k, delta):
    """Eq. 12."""
    g, k = np.asarray(g, np.float64), np.asarray(k, np.float64)
    square = sum(x * x for x in k)
    if square == 0.0:
        return g
    return g - max(0.0, (sum(x * y for x, y in zip(k, g, strict=True)) - delta) / square) * k


def acer_discrete_steps(
    f, f_average, q, mu, a, r, discount, is_last, *, c, delta, lambda_=1.0, entropy_cost=0.0
):
    """Algorithm 2 for one trajectory: (i, z, Q_ret - Q(x_i, a_i)) of each step, last first.

    z is the policy's gradient with respect to the probabilities; without a trust region where delta
    is None. All arrays over rows; f, f_average, q, mu are `[k + 1, A]`.
    """
    k, num_actions = len(a) - 1, len(f[0])
    steps = []
    q_ret = sum(q[k][b] * f[k][b] for b in range(num_actions))
    for i in reversed(range(k)):
        if is_last[i + 1]:
            q_ret = sum(q[i + 1][b] * f[i + 1][b] for b in range(num_actions))
        q_ret = r[i + 1] + discount[i + 1] * q_ret
        v = sum(q[i][b] * f[i][b] for b in range(num_actions))
        if is_last[i]:
            continue
        legal = [b for b in range(num_actions) if f[i][b] > 0]
        rho = {b: f[i][b] / mu[i][b] for b in legal}
        g = np.zeros(num_actions)
        g[a[i]] += min(c, rho[a[i]]) / f[i][a[i]] * (q_ret - v)
        kl = np.zeros(num_actions)
        for b in legal:
            g[b] += max(0.0, 1 - c / rho[b]) * f[i][b] / f[i][b] * (q[i][b] - v)
            g[b] += entropy_cost * (-np.log(f[i][b]) - 1)
            kl[b] = -f_average[i][b] / f[i][b]
        z = g if delta is None else trust_region(g, kl, delta)
        steps.append((i, z, q_ret - q[i][a[i]]))
        q_ret = lambda_ * min(1.0, rho[a[i]]) * (q_ret - q[i][a[i]]) + v
    return steps


def gaussian_density(x, mean, std):
    """Of independent Gaussians with one standard deviation."""
    factors = [
        np.exp(-0.5 * ((y - m) / std) ** 2) / (std * np.sqrt(2 * np.pi))
        for y, m in zip(x, mean, strict=True)
    ]
    return float(np.prod(factors))


def acer_continuous_steps(
    mean, average, v, q, mu, a, a_other, q_other, r, discount, is_last, *, std, c, delta, lambda_
):
    """Algorithm 3: (i, z, Q_ret - Q, min(1, rho_i) (Q_ret - Q)) of each step, last first.

    z is the policy's gradient with respect to the mean. `a_other` are the a', `q_other` their
    values; means and actions are `[k + 1, d]`.
    """
    k, d = len(r) - 1, len(mean[0])
    steps, q_ret, q_opc = [], v[k], v[k]
    for i in reversed(range(k)):
        if is_last[i + 1]:
            q_ret = q_opc = v[i + 1]
        q_ret = r[i + 1] + discount[i + 1] * q_ret
        q_opc = r[i + 1] + discount[i + 1] * q_opc
        if is_last[i]:
            continue
        rho, rho_sampled = (
            gaussian_density(x, mean[i], std) / gaussian_density(x, mu[i], std)
            for x in (a[i], a_other[i])
        )
        g = min(c, rho) * (np.asarray(a[i]) - mean[i]) / std**2 * (q_opc - v[i])
        score_sampled = (np.asarray(a_other[i]) - mean[i]) / std**2
        g = g + max(0.0, 1 - c / rho_sampled) * (q_other[i] - v[i]) * score_sampled
        kl = (np.asarray(mean[i]) - average[i]) / std**2
        z = g if delta is None else trust_region(g, kl, delta)
        steps.append((i, z, q_ret - q[i], min(1.0, rho) * (q_ret - q[i])))
        q_ret = lambda_ * min(1.0, rho ** (1 / d)) * (q_ret - q[i]) + v[i]
        q_opc = (q_opc - q[i]) + v[i]
    return steps


def importance_sampled_return(v, r, discount, rho, is_last):
    """E.4 with its discount: `[k]` for rows 0 .. k."""
    returns = []
    for i in range(len(r) - 1):
        total, weight = 0.0, 1.0
        for j in range(i + 1, len(r)):
            total += weight * r[j]
            weight *= discount[j]
            if is_last[j] or j == len(r) - 1:
                total += weight * v[j]
                break
            weight *= rho[j]
        returns.append(total)
    return np.array(returns)


def truncated_importance_trajectory(v, r, discount, rho, is_last, cap):
    """E.2: weights and advantages `[k]` for rows 0 .. k."""
    weights, advantages = [], []
    for i in range(len(r) - 1):
        product, total, gamma = 1.0, 0.0, 1.0
        for j in range(i + 1, len(r)):
            product *= rho[j - 1]
            total += gamma * r[j]
            gamma *= discount[j]
            if is_last[j] or j == len(r) - 1:
                total += gamma * v[j]
                break
        weights.append(min(cap, product))
        advantages.append(total - v[i])
    return np.array(weights), np.array(advantages)


# losses/transformed.py


def signed_hyperbolic(x, eps):
    """h(x) as printed (NGU, appendix E)."""
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + eps * x


def signed_hyperbolic_inverse(y, eps):
    """h^-1 by bisection on the positive side: h is increasing and |h(x)| >= eps |x|."""
    low, high = 0.0, (abs(float(y)) + 1) / eps
    for _ in range(80):
        middle = (low + high) / 2
        if (middle + 1) ** 0.5 - 1 + eps * middle < abs(y):
            low = middle
        else:
            high = middle
    return (low + high) / 2 if y >= 0 else -(low + high) / 2


def n_step_double_q_target(q_t, q_selector_t, r_t, discount_t, c_t, n, eps):
    """h(sum of n discounted rewards + discounted h^-1(Q(argmax of the selector)))."""
    horizon = len(r_t)
    targets = np.zeros(horizon)
    for source in range(horizon):
        total, discount = 0.0, 1.0
        for s in range(source, horizon):
            total += discount * float(r_t[s])
            discount *= float(discount_t[s])
            if s == source + n - 1 or s == horizon - 1 or c_t[s] == 0:
                best = int(np.argmax(q_selector_t[s]))
                total += discount * signed_hyperbolic_inverse(float(q_t[s][best]), eps)
                break
        targets[source] = signed_hyperbolic(total, eps)
    return targets


def sequence_priority(td_error, mask, eta):
    """eta max + (1 - eta) mean of the absolute errors that count."""
    sizes = [abs(float(error)) for error, counts in zip(td_error, mask, strict=True) if counts]
    return eta * max(sizes) + (1 - eta) * sum(sizes) / len(sizes) if sizes else 0.0


# agents/agent57: episodic memory, novelty


class EpisodicMemory:
    """NGU's algorithm 1 with Python lists; the mean of distances outlives an episode."""

    def __init__(self, capacity, k, xi, eps, c, s_max):
        self.capacity, self.k, self.constants = capacity, k, (xi, eps, c, s_max)
        self.entries, self.means = [], []

    def begin(self):
        self.entries = []

    def reward(self, x):
        x = np.asarray(x, np.float64)
        distances = sorted(float(np.sum((x - entry) ** 2)) for entry in self.entries)
        enough = len(distances) >= self.k
        self.entries = [*self.entries, x][-self.capacity :]
        if not enough:
            return 0.0
        nearest = distances[: self.k]
        self.means.append(sum(nearest) / self.k)
        mean = sum(self.means) / len(self.means)
        xi, eps, c, s_max = self.constants
        total = 0.0
        for distance in nearest:
            scaled = distance / mean if mean > 0 else 0.0
            total += eps / (max(scaled - xi, 0.0) + eps)
        similarity = np.sqrt(total) + c
        return 0.0 if similarity > s_max else 1 / similarity


def lifelong_modulators(errors, window):
    """alpha_t = 1 + (err_t - mean) / deviation; each error's weight is 1 / min(t, window) at first.

    Every later error s multiplies it by 1 - 1 / min(s, window), so the weights sum to 1, and are
    equal for the first `window` errors.
    """
    alphas = []
    for t in range(1, len(errors) + 1):
        seen = np.asarray(errors[:t], np.float64)
        weights = np.zeros(t)
        for s in range(1, t + 1):
            weights *= 1 - 1 / min(s, window)
            weights[s - 1] = 1 / min(s, window)
        mean = np.sum(weights * seen)
        deviation = np.sqrt(np.sum(weights * (seen - mean) ** 2))
        alphas.append(1 + (seen[-1] - mean) / deviation if deviation > 0 else 1.0)
    return np.array(alphas)


def recomputed_rewards(predicted, target, episodic, mask, max_modulator):
    """r^i of a batch, one row at a time: episodic times alpha of the rows that the mask has.

    predicted, target: [B (T+1), D], rows in order. episodic, mask: [B, T+1].
    """
    errors = [float(np.sum((p - q) ** 2)) for p, q in zip(predicted, target, strict=True)]
    seen = [error for error, exists in zip(errors, mask.ravel(), strict=True) if exists]
    mean = sum(seen) / len(seen)
    deviation = np.sqrt(sum((error - mean) ** 2 for error in seen) / len(seen))
    alphas = [1 + (error - mean) / deviation if deviation > 0 else 1.0 for error in errors]
    clipped = [min(max(alpha, 1.0), max_modulator) for alpha in alphas]
    return episodic * np.reshape(clipped, mask.shape)


def agent57_linear_update(params, target_params, rows, mask, weights, config, learning_rate):
    """One SGD step of Agent57's values on Q = W^T features, gradients by hand, one row at a time.

    params: by head, [D, A]. rows: arrays [B, T+1, ...] with keys features, reward,
    intrinsic_reward, discount, is_first, is_last, action, mu, arm. config: a dictionary, besides
    its fields `betas` and `gammas` [N]. Returns new params and priorities [B].
    """
    batch, length = rows["action"].shape
    eps = config["rescaling_epsilon"]
    grads = {name: np.zeros_like(value) for name, value in params.items()}
    priorities = []
    for b in range(batch):
        row = {name: value[b] for name, value in rows.items()}
        arm = row["arm"][0]
        beta, gamma = config["betas"][arm], config["gammas"][arm]
        q = {name: row["features"] @ value for name, value in params.items()}
        q_target = {name: row["features"] @ value for name, value in target_params.items()}
        mixed = q["extrinsic"] + beta * q["intrinsic"] if len(q) == 2 else next(iter(q.values()))
        legal = np.array([legal_actions(x, mixed.shape[1], config) for x in row["observation"]])
        mixed = np.where(legal, mixed, -np.inf)
        reward_of = {
            "extrinsic": row["reward"],
            "intrinsic": row["intrinsic_reward"],
            "mixed": row["reward"] + beta * row["intrinsic_reward"],
        }
        acts = mask[b] & ~row["is_last"]  # rows whose action was taken
        errors = {}
        for name in params:
            discount_t, r_t = gamma * row["discount"][1:], reward_of[name][1:]
            if config["target"] == "double_q":
                go_on = acts[1:].astype(float)
                targets = n_step_double_q_target(
                    q_target[name][1:], mixed[1:], r_t, discount_t, go_on, config["n_step"], eps
                )
            else:
                pi = config["target_epsilon"] * legal / legal.sum(1, keepdims=True)
                pi[np.arange(length), mixed.argmax(1)] += 1 - config["target_epsilon"]
                c_t = np.zeros(length - 1)
                for t in range(1, length):
                    if acts[t]:
                        ratio = pi[t, row["action"][t]] / row["mu"][t]
                        c_t[t - 1] = config["retrace_lambda"] * min(1.0, ratio)
                a_t, q_t = row["action"][1:], q_target[name][1:]
                targets = expected_off_policy_return(q_t, a_t, r_t, discount_t, pi[1:], c_t, eps)
            taken = q[name][np.arange(length - 1), row["action"][:-1]]
            errors[name] = targets - taken
        valid = [
            bool(acts[s] and mask[b, s + 1] and (s >= config["burn_in"] or row["is_first"][0]))
            for s in range(length - 1)
        ]
        for name, error in errors.items():
            for s in range(length - 1):
                if valid[s]:
                    slope = -2 * weights[b] / batch * error[s] * row["features"][s]
                    grads[name][:, row["action"][s]] += slope
        total = errors["extrinsic"] + beta * errors["intrinsic"] if len(q) == 2 else errors[name]
        priorities.append(sequence_priority(total, valid, config["priority_eta"]))
    new = {name: params[name] - learning_rate * grads[name] for name in params}
    return new, np.array(priorities)


# agents/reward_scale.py


def discounted_sums(rewards, is_first, discount):
    """At each t, sum_k discount^k * rewards[t - k] back to the first step of its episode."""
    sums = []
    for t in range(len(rewards)):
        total, back = 0.0, 0
        while not is_first[t - back]:
            total += discount**back * float(rewards[t - back])
            back += 1
        sums.append(total)
    return np.array(sums)


def sums_for_scale(rewards, is_first, is_truncated, discount):
    """Discounted sums; at a limit of H steps, the largest one / (2 (1 - discount^H)), if above."""
    sums = discounted_sums(rewards, is_first, discount)
    counted, begin = sums.copy(), 0
    for t in range(len(rewards)):
        begin = t if is_first[t] else begin
        factor = 0.5 / (1 - discount ** (t - begin)) if is_truncated[t] and t > begin else 0.0
        if factor > 1:
            counted[t] = factor * np.abs(sums[begin : t + 1]).max()
    return counted


# agents/reactor


def legal_actions(x, num_actions, config):
    """What an observation [D] ends in, if the config has "masked"; else all actions are legal."""
    return x[-num_actions:] == 1 if config.get("masked") else np.ones(num_actions, bool)


def _softmax(x, legal=True):
    e = np.exp(x - x.max(-1, keepdims=True)) * legal
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
        eps, legal = config["policy_epsilon"], legal_actions(x, num_actions, config)
        return (1 - eps) * _softmax(x @ weights["policy"], legal) + eps * legal / legal.sum()

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
        r_t = np.clip(rows["reward"][b, 1:], -clip, clip)
        discount_t = config["discount"] * rows["discount"][b, 1:]
        q_star = distributional_off_policy_target(atoms, q_t, a_t, r_t, discount_t, pi_t, c_t)
        errors = []
        for s in range(horizon):
            if rows["is_last"][b, s]:
                continue
            a, mu = rows["action"][b, s], rows["mu"][b, s]
            probs, pi = probs_of(params, x[s]), policy_of(params, x[s])
            errors.append(0.5 * np.abs(q_star[s] - probs[a]).sum())
            scale = weights[b] / (batch * horizon)
            grads["value"][:, a] += scale * np.outer(x[s], probs[a] - q_star[s])
            p = _softmax(x[s] @ params["policy"], pi > 0)
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
            entropy = -sum((np.log(pi[k]) + 1) * grad_pi[k] for k in np.flatnonzero(pi))
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


def kl_divergence(target, probs):
    """sum_i target_i log(target_i / probs_i), where 0 log 0 is 0."""
    return sum(t * np.log(t / p) for t, p in zip(target, probs, strict=True) if t > 0)


def categorical_td_loss(atoms, logits, return_, discount, probs):
    """Cross-entropy of the softmax with the projected target, and their KL divergence."""
    predicted = _softmax(np.asarray(logits, np.float64))
    target = projected(atoms, return_, discount, probs)
    return -float(target @ np.log(predicted)), kl_divergence(target, predicted)


def mixture_samples(key, number, logits, means, scales):
    """Drawn with JAX's numbers: a component, and its entry of Gaussians for every component."""
    of_components, of_gaussians = jax.random.split(key)
    chosen = jax.random.categorical(of_components, np.float32(logits), shape=(number, 1))
    gaussians = jax.random.normal(of_gaussians, (number, len(means)))
    return [means[k] + scales[k] * gaussians[i, k] for i, k in enumerate(np.ravel(chosen))]


def mixture_log_density(x, logits, means, scales):
    """log sum_k w_k N(x; mean_k, scale_k), by the largest term and the others against it."""
    weights = _softmax(np.asarray(logits, np.float64))
    terms = [
        np.log(w) - 0.5 * ((x - m) / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)
        for w, m, s in zip(weights, map(float, means), map(float, scales), strict=True)
    ]
    largest = max(terms)
    return largest + np.log(sum(np.exp(term - largest) for term in terms))


def mixture_priority(values, predicted, return_, discount, bootstrap, min_scale):
    """Mean of r - 1 - log r over values of the target, r = predicted density / target's density.

    predicted and bootstrap: (logits, means, scales).
    """
    logits, means, scales = bootstrap
    means = [return_ + discount * float(mean) for mean in means]
    scales = [max(discount * float(scale), min_scale) for scale in scales]
    terms = []
    for y in values:
        log_r = mixture_log_density(y, *predicted) - mixture_log_density(y, logits, means, scales)
        terms.append(np.exp(log_r) - 1 - log_r)
    return np.mean(terms)


# agents/sequences.py: N-step transitions


def n_step_transition(rewards, discounts, mask, gamma):
    """Return, discount and last row that is not padding, of one sequence `[N + 1]`."""
    rows = [t for t in range(1, len(mask)) if mask[t]]
    return *n_step_return(rewards[rows], gamma * discounts[rows]), max(rows, default=0)


# agents/d4pg


def mixture_parts(outputs, min_scale, unit):
    """Weights, means, scales and the scales' slopes of `[3 K]` outputs."""
    logits, means, raw = np.split(np.asarray(outputs, np.float64), 3)
    scales = unit * np.log1p(np.exp(raw)) + min_scale
    return _softmax(logits), unit * means, scales, unit / (1 + np.exp(-raw))


def d4pg_critic(outputs, return_, discount, outputs_t, config, samples):
    """(Loss, priority), the loss's gradient, mean and its gradient `[P]` of one critic's outputs.

    `samples` are the mixture's, of the bootstrap before it is shifted; others do not need them.
    """
    outputs, unit = np.asarray(outputs, np.float64), config["return_unit"]
    if config["critic"] == "scalar":
        error = unit * outputs[0] - (return_ + discount * unit * outputs_t[0])
        pair = 0.5 * error**2, abs(error)
        return pair, np.array([unit * error]), unit * outputs[0], np.full(1, unit)
    if config["critic"] == "categorical":
        atoms = np.linspace(config["vmin"], config["vmax"], config["num_atoms"])
        target = projected(atoms, return_, discount, _softmax(np.asarray(outputs_t, np.float64)))
        probs = _softmax(outputs)
        mean = probs @ atoms
        pair = -target @ np.log(probs), kl_divergence(target, probs)
        return pair, probs - target, mean, probs * (atoms - mean)
    min_scale = config["mixture_min_scale"]
    weights, means, scales, slopes = mixture_parts(outputs, min_scale, unit)
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
    weights_t, *others_t, _ = mixture_parts(outputs_t, min_scale, unit)
    priority = mixture_priority(
        [return_ + discount * float(sample) for sample in samples],
        (np.log(weights), means, scales),
        return_,
        discount,
        (np.log(weights_t), *others_t),
        min_scale,
    )
    return (loss, priority), gradient, mean, by_outputs


def d4pg_linear_update(params, target, rows, mask, weights, half, config, samples, rates, slope):
    """One SGD step of D4PG (Algorithm 1) on linear networks, one window at a time.

    params: `policy` [D, A], `critic_x` [D, P], `critic_a` [A, P]: u(x) = x policy, pi(x) = slope u,
    outputs = x critic_x + a critic_a; the policy's loss is -Q + cost |u|^2 / 2. rows: arrays
    [B, N + 1, ...]; mask [B, N + 1]; half [A], of the actions' range; samples [B, S]; rates:
    (policy's, critic's). Returns new params, losses [B], priorities [B] and values of the policy
    [B].
    """
    grads = {name: np.zeros_like(value) for name, value in params.items()}
    batch = len(mask)
    pairs, values = [], []
    for b in range(batch):
        return_, discount, last = n_step_transition(
            rows["reward"][b], rows["discount"][b], mask[b], config["discount"]
        )
        x_t = rows["observation"][b, last].astype(np.float64)
        action_t = slope * (x_t @ target["policy"])
        outputs_t = x_t @ target["critic_x"] + action_t @ target["critic_a"]
        x, a = (rows[name][b, 0].astype(np.float64) for name in ("observation", "action"))
        outputs = x @ params["critic_x"] + a @ params["critic_a"]
        pair, gradient, _, _ = d4pg_critic(
            outputs, return_, discount, outputs_t, config, samples[b]
        )
        pairs.append(pair)
        grads["critic_x"] += weights[b] / batch * np.outer(x, gradient)
        grads["critic_a"] += weights[b] / batch * np.outer(a, gradient)
        u = x @ params["policy"]
        outputs = x @ params["critic_x"] + slope * u @ params["critic_a"]
        _, _, value, by_outputs = d4pg_critic(outputs, 0.0, 1.0, outputs, config, [0.0])
        values.append(value)
        dq_da = params["critic_a"] @ by_outputs
        longest = config["max_action_gradient_norm"]
        if longest is not None:
            dq_da = dq_da * min(1.0, longest / np.linalg.norm(half * dq_da))  # dQ/d(a / half)
        by_u = config["preactivation_cost"] * u - slope * dq_da
        grads["policy"] += np.outer(x, by_u) / batch
    rate = {"policy": rates[0], "critic_x": rates[1], "critic_a": rates[1]}
    new = {name: params[name] - rate[name] * grads[name] for name in params}
    return new, *np.array(pairs).T, np.array(values)


# agents/acer


def _acer_arrays(rows, b, config):
    """Rewards, discounts and ends of one segment, as the update sees them, and its constants."""
    clip = config["max_abs_reward"]
    return {
        "r": config["reward_scale"] * np.clip(rows["reward"][b], -clip, clip),
        "discount": config["discount"] * rows["discount"][b],
        "is_last": rows["is_last"][b],
        "c": config["truncation"],
        "delta": config["delta"] if config["trust_region"] else None,
        "lambda_": config["retrace_lambda"],
    }


def acer_linear_update(params, average, rows, weights, config, learning_rate):
    """One SGD step of discrete ACER on a linear network, segment by segment, step by step.

    params and average: `policy` [D, A] and `q` [D, A]; pi = softmax(x policy), Q = x q. Rows as in
    `reactor_linear_update`. Returns new params and priorities [B].
    """
    batch, length = rows["action"].shape
    ascent = {name: np.zeros_like(value) for name, value in params.items()}
    priorities = []
    for b in range(batch):
        x = rows["observation"][b].astype(np.float64)
        legal = [legal_actions(x[i], params["q"].shape[1], config) for i in range(length)]
        f = [_softmax(x[i] @ params["policy"], legal[i]) for i in range(length)]
        f_average = [_softmax(x[i] @ average["policy"], legal[i]) for i in range(length)]
        q = [x[i] @ params["q"] for i in range(length)]
        given = f, f_average, q, rows["mu"][b], rows["action"][b]
        steps = acer_discrete_steps(
            *given, **_acer_arrays(rows, b, config), entropy_cost=config["entropy_cost"]
        )
        scale = weights[b] / (batch * (length - 1))
        for i, z, error in steps:
            jacobian = np.diag(f[i]) - np.outer(f[i], f[i])
            ascent["policy"] += scale * np.outer(x[i], jacobian @ z)
            ascent["q"][:, rows["action"][b, i]] += scale * config["critic_cost"] * error * x[i]
        priorities.append(np.mean([abs(error) for _, _, error in steps]) if steps else 0.0)
    new = {name: params[name] + learning_rate * ascent[name] for name in params}
    return new, np.array(priorities)


def acer_linear_gaussian_update(params, average, rows, noise, weights, config, learning_rate):
    """The same for continuous actions `[d]`.

    params: `policy` [D, d], `value` [D] and `advantage` [D, d]; mean = x policy, V = x value and
    A(x, a) = x advantage a, with a clipped to [-1, 1]. `noise` [B, T+1, 1 + n, d]: standard normal,
    of a' and of the n actions of the dueling network. rows: `drawn` and `mu` are [B, T+1, d].
    """
    batch, length = rows["reward"].shape
    ascent = {name: np.zeros_like(value) for name, value in params.items()}
    priorities = []
    for b in range(batch):
        x = rows["observation"][b].astype(np.float64)
        mean = [x[i] @ params["policy"] for i in range(length)]
        v = [x[i] @ params["value"] for i in range(length)]
        samples = [mean[i] + config["policy_std"] * noise[b, i] for i in range(length)]
        taken, others, q, q_sampled = rows["drawn"][b], [s[0] for s in samples], [], []
        centred = []
        for i in range(length):
            dueling = np.mean([np.clip(u, -1, 1) for u in samples[i][1:]], axis=0)
            centred.append(np.clip(taken[i], -1, 1) - dueling)
            q.append(v[i] + x[i] @ params["advantage"] @ centred[i])
            sampled = np.clip(others[i], -1, 1) - dueling
            q_sampled.append(v[i] + x[i] @ params["advantage"] @ sampled)
        of_average, std = [x[i] @ average["policy"] for i in range(length)], config["policy_std"]
        given = mean, of_average, v, q, rows["mu"][b], taken, others, q_sampled
        steps = acer_continuous_steps(*given, **_acer_arrays(rows, b, config), std=std)
        scale = weights[b] / (batch * (length - 1))
        for i, z, error, v_error in steps:
            ascent["policy"] += scale * np.outer(x[i], z)
            critic = scale * config["critic_cost"]
            ascent["value"] += critic * (error + v_error) * x[i]
            ascent["advantage"] += critic * error * np.outer(x[i], centred[i])
        priorities.append(np.mean([abs(step[2]) for step in steps]) if steps else 0.0)
    new = {name: params[name] + learning_rate * ascent[name] for name in params}
    return new, np.array(priorities)


# networks/torsos.py


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


def convolution_gradients(images, weights, gradient, stride):
    """Gradients of `valid_convolution` with respect to `images` [N, H, W, C] and `weights`."""
    of_images, of_weights = np.zeros(images.shape), np.zeros(weights.shape)
    kernel = weights.shape[0]
    for n, i, j, d in np.ndindex(gradient.shape):
        top, left = i * stride, j * stride
        patch = (n, slice(top, top + kernel), slice(left, left + kernel))
        of_images[patch] += gradient[n, i, j, d] * weights[..., d].astype(np.float64)
        of_weights[..., d] += gradient[n, i, j, d] * images[patch].astype(np.float64)
    return of_images, of_weights


def image_features(image, layers):
    """uint8 image `[H, W, C]` -> `[D]`; `layers` is a list of (weights, biases, stride)."""
    features = image.astype(np.float64) / 255.0
    for weights, biases, stride in layers:
        features = concatenated_relu(valid_convolution(features, weights, biases, stride))
    return features.reshape(-1)


def concatenated_relu(x):
    """`[..., D] -> [..., 2 D]`: the positive parts, then the sizes of the negative ones."""
    return np.concatenate([np.maximum(x, 0.0), np.maximum(-x, 0.0)], axis=-1)


# evaluation/atari57.py


def wins_with_half_ties(scores):
    """`[A, A]` out of `[A][G]`, game by game."""
    wins = np.zeros((len(scores), len(scores)))
    for i, mine in enumerate(scores):
        for j, theirs in enumerate(scores):
            for a, b in zip(mine, theirs, strict=True):
                if i != j:
                    wins[i, j] += 1.0 if a > b else 0.5 if a == b else 0.0
    return wins


def quartiles_cut_mean(values):
    """The mean of what is left when the lowest and highest quarter of a list are taken away."""
    values = sorted(values)
    cut = len(values) // 4
    kept = values[cut : len(values) - cut]
    return sum(kept) / len(kept)


# environments/atari.py


def area_weights(size, smaller):
    """`[smaller, size]`: the part of each old pixel that lies in each new one, as a mean."""
    weights, scale = np.zeros((smaller, size)), size / smaller
    for new in range(smaller):
        for old in range(size):
            overlap = min(old + 1, (new + 1) * scale) - max(old, new * scale)
            weights[new, old] = max(0.0, overlap) / scale
    return weights


# agents/sequences.py


def off_policyness(pi_a, mu_a, acted):
    """Mean ratio, share of ratios below 1, and effective sample size divided by n.

    `pi_a`, `mu_a` and `acted` are `[B, T]`; ratios where `acted` is false do not count.
    """
    ratios = []
    for b in range(acted.shape[0]):
        for t in range(acted.shape[1]):
            if acted[b, t]:
                ratios.append(float(pi_a[b, t]) / float(mu_a[b, t]))
    n, total = len(ratios), sum(ratios)
    squares = sum(ratio**2 for ratio in ratios)
    if n == 0:
        return 0.0, 0.0, 0.0
    cut = sum(1 for ratio in ratios if ratio < 1) / n
    return total / n, cut, total**2 / (n * squares) if squares else 0.0


# agents/optimization.py


def adam(params, gradients, learning_rate, b1=0.9, b2=0.999, epsilon=1e-8, *, clip=np.inf, decay=0):
    """Parameters after Adam's steps on a list of gradients: clip of the norm, then L2, then Adam.

    All are single numbers or arrays of one shape.
    """
    first = second = 0.0
    for number, gradient in enumerate(gradients, 1):
        norm = np.sqrt(np.sum(np.square(gradient)))
        gradient = gradient * (clip / norm if norm > clip else 1.0) + decay * params
        first = b1 * first + (1 - b1) * gradient
        second = b2 * second + (1 - b2) * gradient**2
        direction = first / (1 - b1**number)
        step = direction / (np.sqrt(second / (1 - b2**number)) + epsilon)
        params = params - learning_rate * step
    return params
