"""Wrong answers to the exercises: for each, its source code and the diagnosis that it must get.

`ALSO_RIGHT` has answers that differ from the solution of the notebook, and must be accepted.

A function is written as an expression, which the tests assign to the name that the stub of the
notebook has. Names are those of the notebook.
"""

Wrong = dict[str, tuple[str, str]]  # what is wrong: (code, part of the diagnosis)


def pairs(window: int, index: str, flush: bool = True) -> str:
    """Code of an answer to exercise 01.1."""
    return f"""
def write_pairs(client, observations):
    with client.trajectory_writer(num_keep_alive_refs={window}) as writer:
        for t, observation in enumerate(observations):
            writer.append(observation)
            if t >= 5:
                writer.create_item("pairs", priority=1.0, trajectory=writer.history[{index}])
"""


def table(sampler: str, remover: str, size: int) -> str:
    """Code of an answer to exercise 01.4."""
    return f"""
def best_table(name):
    selectors, limiter = reverb.selectors, reverb.rate_limiters.MinSize(1)
    return reverb.Table(name, selectors.{sampler}(), selectors.{remover}(), {size}, limiter)
"""


def windows(options: str, last: str = "windows") -> str:
    """Code of an answer to exercise 02.5; `options` are of the buffer."""
    return f"""
def every_window(steps):
    spec = buffer_comparison.counted_spec()
    buffer = tf_uniform.TFUniformReplayBuffer(spec, batch_size=1, max_length=8{options})
    for step in steps:
        buffer.add_batch(buffer_comparison.batched(step))
    one_pass = buffer.as_dataset(num_steps=2, single_deterministic_pass=True)
    windows = [window.observation.numpy().tolist() for window, _ in one_pass]
    return {last}
"""


def masked(mask: str) -> str:
    """Code of an answer to exercise 02.6 that keeps the windows where `mask` is true."""
    return f"""
def within_episodes(windows):
    mask = {mask}
    return tf.nest.map_structure(lambda t: t[mask], windows)
"""


def saved(keyword: str, other: str) -> str:
    """Code of an answer to exercise 02.8 that saves and restores under these names."""
    return f"""
def save_and_restore(buffer, fresh, folder):
    path = tf.train.Checkpoint({keyword}=buffer).save(folder + "/b")
    tf.train.Checkpoint({other}=fresh).restore(path)
"""


def soft_row(
    total: str = "f @ r",
    factor: str = "g ** len(r)",
    value: str = "min(q, p) - a * l",
    end: str = "d[-1]",
) -> str:
    """Code of an answer to exercise 03.4."""
    return f"""
def row_target(r, d, q, p, l, a, g):
    f = g ** np.arange(len(r))
    return {total} + {end} * {factor} * ({value})
"""


def log_prob(terms: str, reduce: str = "np.sum", deviation: str = "s") -> str:
    """Code of an answer to exercise 03.3."""
    return f"""
def squashed_log_prob(u, m, s, h):
    s = {deviation}
    normal = -0.5 * ((u - m) / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)
    slope = 2 * (np.log(2) - u - np.logaddexp(0, -2 * u))
    return {reduce}({terms})
"""


def followed(statement: str) -> str:
    """Code of an answer to exercise 03.7."""
    return f"""
def follow(critic, target, tau):
    for w, t in zip(critic, target):
        {statement}
"""


def policy_loss(
    q: str = "tf.minimum(*critics(tf.tanh(u)))",
    terms: str = "alpha * log_pi - q",
    reduce: str = "tf.reduce_mean",
) -> str:
    """Code of an answer to exercise 03.5."""
    return f"""
def policy_loss(mean, deviation, noise, critics, log_prob, alpha):
    u = mean + deviation * noise
    q, log_pi = {q}, log_prob(u, mean, deviation)
    return {reduce}({terms})
"""


TWO_COLUMNS = "(writer.history[-6], writer.history[-1])"
NAMED_COLUMNS = '{"now": writer.history[-6:-5], "later": writer.history[-1:]}'

WRONG: dict[str, Wrong] = {
    "01.1": {
        "window of 5": (pairs(5, "[-6, -1]"), "A window of 5 no longer holds the first step"),
        "window of 8": (pairs(8, "[-6, -1]"), "a window of 8 keeps more steps"),
        "a slice": (pairs(6, "-6:"), "a slice takes all between its ends"),
        "four steps": (pairs(6, "[-5, -1]"), "your first item are 4 steps apart: [1, 5]"),
        "reversed": (pairs(6, "[-1, -6]"), "Your item begins with the later observation: [5, 0]"),
        "another value": (
            pairs(6, "[-6, -1]").replace("observation)", "0 * observation)"),
            "An item holds the observations [0, 0]: append each observation",
        ),
        "no item": ("write_pairs = lambda client, observations: [0]", "The table is empty"),
        "an error": ("write_pairs = lambda client: 0", "Your answer raised TypeError: "),
    },
    "01.2": {
        "ends forgotten": ("sharing_factor = lambda T, L: L", "are in fewer than L items"),
        "one item short": (
            "sharing_factor = lambda T, L: L * (T - L) / T",
            "There is one item more: 9 of them, not 8",
        ),
        "inverted": ("sharing_factor = lambda T, L: T / (L * (T - L + 1))", "It is inverted"),
        "no number": ("sharing_factor = lambda T, L: 'three'", "must be a number, but it is"),
    },
    "01.3": {
        "a factor": ("exponent = lambda p, ratio: ratio / p", "an exponent, p^α, and not a factor"),
        "inverted": (
            "exponent = lambda p, ratio: np.log(p) / np.log(ratio)",
            "The quotient of the logarithms is inverted",
        ),
        "negative": ("exponent = lambda p, ratio: -1.5", "no negative exponent"),
        "one number": ("exponent = lambda p, ratio: 1.5", "Solve p^α = ratio for α"),
        "no function": ("exponent = 1.5", "must be a function, but it is 1.5"),
    },
    "01.4": {
        "MaxHeap": (table("Uniform", "MaxHeap", 4), "It kept the lowest, [1.0, 2.0, 3.0, 4.0]"),
        "Fifo": (table("Uniform", "Fifo", 4), "It kept the newest, [2.0, 4.0, 6.0, 7.0]"),
        "room for 5": (table("Uniform", "MinHeap", 5), "The table keeps 5 items, not 4"),
        "only the best": (table("MaxHeap", "MinHeap", 4), "does not draw all four equally"),
        "a queue": (
            "best_table = lambda name: reverb.Table.queue(name, 4)",
            "The check timed out: it gave up waiting to insert after 1 s",
        ),
        "a name": ("best_table = lambda name: name", "must return a reverb.Table"),
    },
    "01.5": {
        "one insert first": (
            "my_order = 'I' + 2 * 'ssssssssI' + 's'",
            "Request 2 of your answer is wrong: the balance is 8 there, and an insert would",
        ),
        "two and two": (
            "my_order = 'II' + 16 * 's' + 'II'",
            "Request 11 of your answer is wrong: the balance is 8 there",
        ),
        "three inserts": (
            "my_order = 'III' + 17 * 's'",
            "raise it to 24, above the limit of 16, so a sample comes first",
        ),
        "words": ("my_order = 'insert'", "must be 20 letters I or s"),
    },
    "01.6": {
        "each item": ("freed_bytes = lambda n, chunk, k: 100 * k", "A chunk stays whole while one"),
        "nothing": ("freed_bytes = lambda n, chunk, k: 0", "A chunk goes when the last item"),
    },
    "01.7": {
        "waiting": ("deliver = lambda writer: time.sleep(0.2)", "however long you wait"),
        "the end": ("deliver = lambda writer: writer.end_episode()", "the episode has ended"),
        "closed": ("deliver = lambda writer: writer.close()", "The writer is closed"),
    },
    "02.1": {
        "time": (
            "index_of = lambda k, n, c: k - max(0, n - c) if max(0, n - c) <= k < n else -1",
            "its place in the order of time",
        ),
        "never gone": (
            "index_of = lambda k, n, c: k % c if k < n else -1",
            "Row 0 was overwritten by row 8",
        ),
        "the future": (
            "index_of = lambda k, n, c: k % c if n - c <= k else -1",
            "the newest is row 12",
        ),
        "from one": (
            "index_of = lambda k, n, c: (k + 1) % c if n - c <= k < n else -1",
            "row 0 goes to index 0",
        ),
        "too strict": (
            "index_of = lambda k, n, c: k % c if n - c < k < n else -1",
            "Row 5 of 13 in a ring of 8: 5, yours is -1. The ring still holds this row",
        ),
    },
    "02.2": {
        "no epsilon": (
            "probabilities = lambda d, a, e: np.abs(d)**a / np.sum(np.abs(d)**a)",
            "ε is missing",
        ),
        "late": (
            "probabilities = lambda d, a, e: ((np.abs(d) + e) / np.sum(np.abs(d) + e))**a",
            "apply α before you divide by the sum",
        ),
        "no alpha": (
            "probabilities = lambda d, a, e: (np.abs(d) + e) / np.sum(np.abs(d) + e)",
            "at α = 0 all rows must be equally likely",
        ),
        "no sum": ("probabilities = lambda d, a, e: (np.abs(d) + e)**a", "divide by their sum"),
        "the sign": (
            "probabilities = lambda d, a, e: (d + 5)**a / np.sum((d + 5)**a)",
            "take |δ|",
        ),
    },
    "02.3": {
        "sign": ("importance_weights = lambda p, b: (p / p.max()) ** b", "must weigh less"),
        "not scaled": ("importance_weights = lambda p, b: p ** -b", "Divide by the largest"),
        "β ignored": ("importance_weights = lambda p, b: p.min() / p", "β sets how much"),
        "linear": ("importance_weights = lambda p, b: 1 - b * p", "of uniform ones: 4, and yours"),
        "the last": (
            "importance_weights = lambda p, b: p**-b / p[-1]**-b",
            "Divide by the largest",
        ),
        "one number": ("importance_weights = lambda p, b: 1.0", "There must be 4 weights"),
    },
    "02.4": {
        "one is enough": (
            "ready = lambda b, n: (b.size if hasattr(b, 'size') else b.num_frames()) > 0",
            "You say True. One step is not enough for a window of two",
        ),
        "only num_frames": (
            "ready = lambda b, n: b.num_frames() >= n",
            "PyUniformReplayBuffer has no num_frames() (NotImplementedError)",
        ),
        "only size": ("ready = lambda b, n: b.size >= n", "TFUniformReplayBuffer has no size"),
        "always": ("ready = lambda b, n: True", "whatever is read is not experience"),
        "never": ("ready = lambda b, n: False", "That is enough for one window"),
    },
    "02.5": {
        "no overlap": (windows(""), "4 windows without overlap, [[5, 6], [7, 8]"),
        "the tail": (windows(", dataset_window_shift=1"), "cut to one step, [12]"),
        "not in order": (
            windows(", dataset_window_shift=1", "windows[:-1][::-1]"),
            "not in the order of time",
        ),
        "too many": ("every_window = lambda steps: [[k, k + 1] for k in range(12)]", "yours are"),
    },
    "02.6": {
        "nothing": ("within_episodes = lambda windows: windows", "crosses an episode boundary"),
        "a mask": (
            "within_episodes = lambda windows: ~windows.is_boundary()[:, 0]",
            "must return a Trajectory of windows",
        ),
        "the end": (
            masked("~tf.reduce_any(windows.is_boundary(), axis=1)"),
            "drops the window 6 → 7, which leads to the end of an episode",
        ),
        "falls": (
            masked("~windows.is_boundary()[:, 0] & (windows.discount[:, 0] > 0)"),
            "drops the window 6 → 7, which leads to the end of an episode",
        ),
        "inverted": (masked("windows.is_boundary()[:, 0]"), "The window 7 → 8 crosses"),
        "one tensor": (
            "within_episodes = lambda windows: windows._replace("
            "observation=windows.observation[~windows.is_boundary()[:, 0]])",
            "but `step_type` has other rows",
        ),
        "the start": (
            masked("windows.step_type[:, 0] == StepType.MID"),
            "drops the window 8 → 9, which is within one",
        ),
        "rewarded": (
            masked("windows.reward[:, 0] > 0"),
            "drops the window 5 → 6, because its reward is 0",
        ),
        "any reward": (
            masked("windows.reward[:, 0] != 0"),
            "drops the window 5 → 6, because its reward is 0",
        ),
    },
    "02.7": {
        "own scatter": (
            "largest_deviation = lambda c: np.abs(c - c.mean()).max() / c.std()",
            "how much these counts scatter",
        ),
        "own scatter, n − 1": (
            "largest_deviation = lambda c: np.abs(c - c.mean()).max() / np.std(c, ddof=1)",
            "how much these counts scatter",
        ),
        "a constant scale": (
            "largest_deviation = lambda c: "
            "np.abs(c - c.mean()).max() / np.sqrt(7000 * (1 / 7) * (6 / 7))",
            "Your scale is that of 7000 draws from 7 windows: here n = 2400 and p = 1 / 5",
        ),
        "Poisson": (
            "largest_deviation = lambda c: np.abs(c - c.mean()).max() / np.sqrt(c.mean())",
            "n p (1 − p), not n p",
        ),
        "only too many": (
            "largest_deviation = lambda c: max(c.max() - c.mean(), 0)"
            " / np.sqrt(c.mean() * (1 - 1 / len(c)))",
            "take absolute distances",
        ),
        "seven windows": (
            "largest_deviation = lambda c: "
            "np.abs(c - c.mean()).max() / np.sqrt(c.mean() * (1 - 1 / 7))",
            "Each count is binomial: n = 2400 draws, probability p = 1 / 5",
        ),
        "no scale": ("largest_deviation = lambda c: 1e4", "Each count is binomial"),
        "too small": ("largest_deviation = lambda c: 0.01", "Each count is binomial"),
    },
    "02.8": {
        "another name": (saved("buffer", "fresh"), "The fresh TFUniform buffer is empty"),
        "never read": (
            "save_and_restore = lambda b, f, folder: tf.train.Checkpoint(b=b).save(folder + '/b')",
            "restore() goes by name",
        ),
        "a copy": (
            "def save_and_restore(buffer, fresh, folder):\n"
            "    for old, new in zip(buffer.variables(), fresh.variables()):\n"
            "        new.assign(old)",
            "a copy in memory is lost",
        ),
        "last step": (
            "def save_and_restore(buffer, fresh, folder):\n"
            "    np.save(folder + '/b', 0)\n"
            "    step = buffer_comparison.counted_steps(13)[-1]\n"
            "    fresh.add_batch(buffer_comparison.batched(step))",
            "The restored TFUniform buffer, its contents: [12]; it must be [5, 6, 7, 8",
        ),
    },
    "02.9": {
        "γ once": (
            "n_step_target = lambda r, d, v, g: r.sum() + g * d.prod() * v",
            "by the steps before it. The value comes 5 steps later: γ^5, not γ.",
        ),
        "value too near": (
            "n_step_target = lambda r, d, v, g: g ** np.arange(5) @ r + g * d.prod() * v",
            "The value comes 5 steps later: γ^5, not γ",
        ),
        "γ to the fourth": (
            "n_step_target = lambda r, d, v, g: g ** np.arange(5) @ r + g**4 * d.prod() * v",
            "one step after the last reward: γ^5",
        ),
        "first reward": (
            "n_step_target = lambda r, d, v, g: g ** np.arange(1, 6) @ r + g**5 * d.prod() * v",
            "The first reward is not discounted",
        ),
        "past the fall": (
            "n_step_target = lambda r, d, v, g: g ** np.arange(5) @ r + g**5 * v",
            "a discount of 0 ends the sum",
        ),
        "plain sum": (
            "n_step_target = lambda r, d, v, g: r.sum() + g**5 * d.prod() * v",
            "Each reward is discounted by the steps before it",
        ),
        "the next reward alone": (
            "n_step_target = lambda r, d, v, g: g ** np.arange(len(r)) @ "
            "(r * np.append(1.0, d[:-1])) + g ** len(r) * d.prod() * v",
            "all later rewards, not only the next one",
        ),
        "no value": ("n_step_target = lambda r, d, v, g: r.sum()", "and then the value"),
        "always five": (
            "n_step_target = lambda r, d, v, g: "
            "sum(g**k * r[k] for k in range(5)) + g**5 * d[-1] * v",
            "raised IndexError. It works for 5 steps, but this row spans 3: take n from len(",
        ),
        "always five powers": (
            "n_step_target = lambda r, d, v, g: g ** np.arange(5) @ r + g**5 * d[-1] * v",
            "raised ValueError. It works for 5 steps, but this row spans 3",
        ),
        "γ to the fifth": (
            "n_step_target = lambda r, d, v, g: g ** np.arange(len(r)) @ r + g**5 * d[-1] * v",
            "γ^5 is right for 5 steps only",
        ),
        "rewards without discounts": (
            "n_step_target = lambda r, d, v, g: "
            "g ** np.arange(len(r)) @ r + g ** len(r) * d.prod() * v",
            "A discount also multiplies all later rewards, not only the value",
        ),
        "if the last": (
            "n_step_target = lambda r, d, v, g: "
            "g ** np.arange(len(r)) @ r + (g ** len(r) * v if d[-1] else 0)",
            "You use only the last discount",
        ),
        "own discount": (
            "n_step_target = lambda r, d, v, g: g ** np.arange(len(r)) @ (r * d.cumprod())"
            " + g ** len(r) * d.prod() * v",
            "multiplies the rewards after it, not the reward of its own step",
        ),
    },
    "03.1": {
        "limit": (
            "stored_discount = lambda fell, step, limit: float(not fell and step < limit)",
            "The time limit only interrupts the task (truncation)",
        ),
        "limit wins": (
            "stored_discount = lambda fell, step, limit: float(not fell or step == limit)",
            "a fall is a termination",
        ),
        "γ": ("stored_discount = lambda fell, step, limit: 0.99 * (not fell)", "multiplies by γ"),
        "always": (
            "stored_discount = lambda fell, step, limit: 1",
            "no reward follows (termination)",
        ),
        "never": ("stored_discount = lambda fell, step, limit: 0", "The episode goes on"),
        "one step early": (
            "stored_discount = lambda fell, step, limit: float(not (fell or step == limit - 1))",
            "One more step follows before the limit",
        ),
    },
    "03.2": {
        "effective": ("horizon = lambda g, share: 1 / (1 - g)", "the sum of all powers of γ"),
        "down": (
            "horizon = lambda g, share: int(np.log(share) / np.log(g))",
            "After 298 steps the weight is still 0.05004",
        ),
        "one more": (
            "horizon = lambda g, share: int(np.log(share) / np.log(g)) + 1",
            "share 0.25: 2 steps, yours is 3. After 2 steps the weight is already 0.25000",
        ),
        "not whole": ("horizon = lambda g, share: np.log(share) / np.log(g)", "is whole: round up"),
        "inverted": ("horizon = lambda g, share: np.log(g) / np.log(share)", "is inverted"),
        "always": ("horizon = lambda g, share: 299", "share 0.5: 7 steps, yours is 299. Solve"),
    },
    "03.3": {
        "no log-determinant": (log_prob("normal - np.log(h)"), "You forgot the log-determinant"),
        "sign": (log_prob("normal + slope - np.log(h)"), "The log-determinant has the wrong sign"),
        "no range": (log_prob("normal - slope"), "You forgot the action range"),
        "range added": (log_prob("normal - slope + np.log(h)"), "The range has the wrong sign"),
        "neither": (
            log_prob("normal"),
            "subtract log(1 − tanh² u) of each dimension. You forgot the",
        ),
        "of each dimension": (
            log_prob("normal - slope - np.log(h)", "np.array"),
            "sum the logarithms",
        ),
        "rounds to 0": (
            log_prob("normal - np.log(1 - np.tanh(u) ** 2) - np.log(h)"),
            "yours is inf. Near the ends 1 − tanh² u rounds to 0",
        ),
        "made safe": (
            log_prob("normal - np.log(1 - np.tanh(u) ** 2 + 1e-9) - np.log(h)"),
            "Near the ends 1 − tanh² u rounds to 0",
        ),
        "variance": (
            log_prob("normal - slope - np.log(h)")
            .replace("/ s)", "/ s**2)")
            .replace("(s)", "(s**2)"),
            "do not square it",
        ),
        "root": (
            log_prob("normal - slope - np.log(h)")
            .replace("m) / s", "m) / s**0.5")
            .replace("log(s)", "log(s**0.5)"),
            "do not take its root",
        ),
        "range of one dimension": (
            log_prob("normal - slope - np.log(np.sum(h)) / 2"),
            "log N(u; μ, σ) − log(1 − tanh² u) − log(half range)",
        ),
        "of the action": (log_prob("-0.5 * np.tanh(u) ** 2"), "log N(u; μ, σ) − log(1 − tanh² u)"),
    },
    "03.4": {
        "γ once": (soft_row(factor="g"), "The value comes 5 steps later: γ^5, not γ."),
        "no entropy": (soft_row(value="min(q, p)"), "You forgot the entropy term"),
        "entropy added": (
            soft_row(value="min(q, p) + a * l"),
            "The entropy term has the wrong sign",
        ),
        "higher critic": (soft_row(value="max(q, p) - a * l"), "You take the higher critic"),
        "second critic": (soft_row(value="p - a * l"), "You take the higher critic"),
        "mean critic": (soft_row(value="(q + p) / 2 - a * l"), "You take the mean of the critics"),
        "plain sum": (soft_row(total="r.sum()"), "Each reward is discounted by the steps before"),
        "γ too small": (soft_row(factor="f[-1]"), "one step after the last reward: γ^5"),
        "γ to the fifth": (soft_row(factor="g**5"), "γ^5 is right for 5 steps only"),
        "γ too early": (soft_row(total="g * f @ r"), "The first reward is not discounted"),
        "entropy today": (
            soft_row(value="min(q, p) - a * l / g ** len(r)"),
            "The entropy term is part of the value: discount it, too",
        ),
        "own discount": (soft_row(total="f @ (r * d)"), "not the reward of its own step"),
        "past the fall": (soft_row(end="1"), "a discount of 0 ends the sum"),
        "the last discount": (soft_row(), "You use only the last discount"),
        "two mistakes": (
            soft_row(factor="g", value="max(q, p) - a * l"),
            "γ^5, not γ. You take the higher critic",
        ),
        "no value": (soft_row(value="0"), "and then the soft value"),
    },
    "03.5": {
        "higher critic": (policy_loss(q="tf.maximum(*critics(tf.tanh(u)))"), "the higher critic"),
        "first critic": (policy_loss(q="critics(tf.tanh(u))[0]"), "You take the first critic"),
        "mean critic": (policy_loss(q="sum(critics(tf.tanh(u))) / 2"), "the mean of the critics"),
        "no tanh": (policy_loss(q="tf.minimum(*critics(u))"), "Q needs the action: tanh of u"),
        "to be maximised": (
            policy_loss(terms="q - alpha * log_pi"),
            "Q has the wrong sign: a loss is minimised, and Q must grow. The entropy term has",
        ),
        "Q minimised": (policy_loss(terms="alpha * log_pi + q"), "Q has the wrong sign"),
        "less entropy": (policy_loss(terms="-alpha * log_pi - q"), "the actor must lower log π"),
        "no entropy": (policy_loss(terms="-q"), "You forgot the entropy term α log π"),
        "no α": (policy_loss(terms="log_pi - q"), "You forgot α"),
        "sum": (policy_loss(reduce="tf.reduce_sum"), "You sum over the batch"),
        "not averaged": (policy_loss(reduce="tf.identity"), "yours has shape (6,): average"),
        "NumPy": (policy_loss(reduce="np.mean"), "no gradient reaches `mean` and `std`"),
        "Q without gradient": (
            policy_loss(q="tf.stop_gradient(tf.minimum(*critics(tf.tanh(u))))"),
            "The value is right, and its gradient is not",
        ),
        "log π without gradient": (
            policy_loss(terms="alpha * tf.stop_gradient(log_pi) - q"),
            "The value is right, and its gradient is not",
        ),
        "fixed action": (
            policy_loss().replace("deviation * noise", "tf.constant((deviation * noise).numpy())"),
            "The value is right, and its gradient is not",
        ),
        "something else": (policy_loss(terms="q * 0 + 3"), "mean(α log π − min Q)"),
    },
    "03.6": {
        "reversed": (
            "next_log_alpha = lambda a, l, h, rate: a + rate * np.mean(-l - h)",
            "Your α moves the wrong way: the policy is more random than the target",
        ),
        "target's sign": (
            "next_log_alpha = lambda a, l, h, rate: a - rate * np.mean(-l + h)",
            "The target entropy has the wrong sign",
        ),
        "sign of log π": (
            "next_log_alpha = lambda a, l, h, rate: a - rate * np.mean(l - h)",
            "than the target. The target entropy has the wrong sign",
        ),
        "sum": (
            "next_log_alpha = lambda a, l, h, rate: a - rate * np.sum(-l - h)",
            "the loss is a mean",
        ),
        "as in the paper": (
            "next_log_alpha = lambda a, l, h, rate: a - rate * np.exp(a) * np.mean(-l - h)",
            "The gradient by log α has no factor α",
        ),
        "the loss": (
            "next_log_alpha = lambda a, l, h, rate: a * np.mean(-l - h)",
            "That is the loss: return log α after the step",
        ),
        "always down": (
            "next_log_alpha = lambda a, l, h, rate: a - 3",
            "yours to -4.00. log α − rate",
        ),
    },
    "03.7": {
        "swapped": (followed("t.assign((1 - tau) * w + tau * t)"), "τ and 1 − τ are swapped"),
        "into the critic": (
            followed("w.assign(tau * w + (1 - tau) * t)"),
            "You averaged into the critic: only the target follows",
        ),
        "a name": (followed("t = tau * w + (1 - tau) * t"), "only names a new tensor"),
        "a copy": (followed("t.assign(w)"), "You copied the critic"),
        "no decay": (followed("t.assign(t + tau * w)"), "You forgot the factor 1 − τ"),
        "half": (followed("t.assign((w + t) / 2)"), "for every variable"),
        "elements": (
            "def follow(critic, target, tau):\n"
            "    for i in range(len(target)):\n"
            "        target[i] = tau * critic[i] + (1 - tau) * target[i]",
            "You replaced elements of the list",
        ),
        "a new list": (
            "def follow(critic, target, tau):\n"
            "    target[:] = [tau * w + (1 - tau) * t for w, t in zip(critic, target)]",
            "You replaced elements of the list",
        ),
    },
    "03.8": {
        "one observation": (
            "row_bytes = lambda o, a: 4 * (o + a + 2)",
            "before and after the action",
        ),
        "no reward": ("row_bytes = lambda o, a: 4 * (2 * o + a)", "You forgot reward and discount"),
        "neither": (
            "row_bytes = lambda o, a: 4 * (o + a)",
            "Two observations, reward and discount",
        ),
        "numbers": ("row_bytes = lambda o, a: 2 * o + a + 2", "That counts numbers"),
        "doubles": ("row_bytes = lambda o, a: 8 * (2 * o + a + 2)", "float32, not float64"),
        "guess": ("row_bytes = lambda o, a: 1000", "264 bytes, yours is 1000. obs_tm1"),
    },
    "03.9": {
        "each row": (
            "actions_per_fall = lambda d, n: 1 / np.mean(d == 0)",
            "so you count it 5 times",
        ),
        "divided": ("actions_per_fall = lambda d, n: 1 / np.mean(d == 0) / n", "multiply by n"),
        "below 1": ("actions_per_fall = lambda d, n: n / np.mean(d < 1)", "below 1 without a fall"),
        "falls per step": (
            "actions_per_fall = lambda d, n: np.mean(d == 0) / n",
            "other way round",
        ),
        "a count": ("actions_per_fall = lambda d, n: np.sum(d == 0)", "share of the rows with"),
        "sequences of zeros": (
            "actions_per_fall = lambda d, n: len(d) / np.sum((d == 0) & ~np.roll(d == 0, 1))",
            "you count it 5 times",
        ),
        "whole falls": (
            "actions_per_fall = lambda d, n: len(d) / (np.sum(d == 0) // n)",
            "share of the rows with",
        ),
    },
    "03.10": {
        "own rows": (
            "replica_loss = lambda e, n: np.mean(e)",
            "2 times the gradient. You average over the replica's 4 rows",
        ),
        "sum": ("replica_loss = lambda e, n: np.sum(e)", "You sum without dividing"),
        "both": ("replica_loss = lambda e, n: np.mean(e) / n", "You divide twice"),
        "two replicas": (
            "replica_loss = lambda e, n: np.mean(e) / 2",
            "The losses of 4 replicas add up to 9.750, one device has 4.875",
        ),
        "not a number": ("replica_loss = lambda e, n: e / n", "The answer must be a number"),
    },
    "04.1": {
        "a set": (
            "def as_they_come(ray, refs):\n"
            "    while refs:\n"
            "        ready, refs = ray.wait(set(refs))\n"
            "        yield ray.get(ready[0])",
            "wait() expected a list of references, and yours is a set",
        ),
        "in the list's order": (
            "as_they_come = lambda ray, refs: ray.get(refs)",
            "ray.get waited for the slow task",
        ),
        "never removed": (
            "def as_they_come(ray, refs):\n"
            "    results = []\n"
            "    while refs:\n"
            "        ready, _ = ray.wait(refs)\n"
            "        results += [ray.get(ready[0])]\n"
            "    return results",
            "your loop still runs: wait for the second list",
        ),
        "all at once": (
            "def as_they_come(ray, refs):\n"
            "    ready, _ = ray.wait(refs, num_returns=3)\n"
            "    return [ray.get(one) for one in ready]",
            "'fast' was fetched only after later tasks had ended",
        ),
        "positional": (
            "def as_they_come(ray, refs):\n"
            "    results = []\n"
            "    while refs:\n"
            "        ready, refs = ray.wait(refs, 1)\n"
            "        results += ray.get(ready)\n"
            "    return results",
            "wait() takes 1 positional argument but 2 were given. Write num_returns=1.",
        ),
        "a generator, all at once": (
            "def as_they_come(ray, refs):\n"
            "    ready, _ = ray.wait(refs, num_returns=len(refs))\n"
            "    for one in ready:\n"
            "        yield ray.get(one)",
            "'fast' was fetched only after later tasks had ended",
        ),
        "one too often": (
            "def as_they_come(ray, refs):\n"
            "    results = []\n"
            "    while True:\n"
            "        ready, refs = ray.wait(refs)\n"
            "        results += ray.get(ready)",
            "ray.wait raises for an empty list",
        ),
        "a time limit, unchecked": (
            "def as_they_come(ray, refs):\n"
            "    results = []\n"
            "    while refs:\n"
            "        ready, refs = ray.wait(refs, timeout=0.5)\n"
            "        results += [ray.get(ready[0])]\n"
            "    return results",
            "IndexError",
        ),
        "only the first": (
            "as_they_come = lambda ray, refs: [ray.get(ray.wait(refs)[0][0])]",
            "There are three results",
        ),
    },
    "04.2": {
        "no copy": (
            "def push(server, version, weights):\n"
            "    if version > server['version']:\n"
            "        server.update(version=version, weights=weights)",
            "Your server keeps the learner's own array",
        ),
        "any version": (
            "def push(server, version, weights):\n"
            "    server.update(version=version, weights=weights.copy())",
            "Version 5 arrived after version 10 and replaced it",
        ),
        "an equal version": (
            "def push(server, version, weights):\n"
            "    if version >= server['version']:\n"
            "        server.update(version=version, weights=weights.copy())",
            "Another push of version 10 replaced the first one",
        ),
        "no version": (
            "def push(server, version, weights):\n    server['weights'] = weights.copy()",
            "store both",
        ),
        "only once": (
            "def push(server, version, weights):\n"
            "    if not server['version']:\n"
            "        server.update(version=version, weights=weights.copy())",
            "Version 20 is newer than 10",
        ),
    },
    "04.3": {
        "a copy": ("follow = lambda t, c, tau, steps: c", "That is a full copy"),
        "swapped": (
            "follow = lambda t, c, tau, steps: c + tau**steps * (t - c)",
            "τ is the share of the new weights",
        ),
        "once": (
            "follow = lambda t, c, tau, steps: (1 - tau) * t + tau * c",
            "3 updates: yours is 1. That is one update",
        ),
        "straight": (
            "follow = lambda t, c, tau, steps: t + tau * steps * (c - t)",
            "each update moves τ of the distance that is left",
        ),
        "nothing": ("follow = lambda t, c, tau, steps: t", "It must be 1."),
        "without the first": (
            "follow = lambda t, c, tau, steps: c * (1 - (1 - tau) ** steps)",
            "From 8 towards 10 with τ = 0.1, 1 updates: yours is 1. A share (1 − τ)ᵏ of the first",
        ),
        "another shape": ("follow = lambda t, c, tau, steps: t[0]", "Return weights of shape (2,)"),
    },
    "04.4": {
        "last wins": (
            "merge = lambda server, pulled, pushed: pushed",
            "The last push wins, and the first learner's step is lost",
        ),
        "average": (
            "merge = lambda server, pulled, pushed: (server + pushed) / 2",
            "An average counts each step half",
        ),
        "sum": (
            "merge = lambda server, pulled, pushed: server + pushed",
            "Add what the learner changed",
        ),
        "what changed": (
            "merge = lambda server, pulled, pushed: np.where(pushed != pulled, pushed, server)",
            "The last push wins",
        ),
        "the larger": (
            "merge = lambda server, pulled, pushed: np.maximum(server, pushed)",
            "Add what the learner changed",
        ),
    },
    "04.5": {
        "a chunk": ("lost_rows = lambda taken, chunk: chunk", "the most that can be lost"),
        "all": ("lost_rows = lambda taken, chunk: taken", "which still runs"),
        "the others": (
            "lost_rows = lambda taken, chunk: taken // chunk * chunk",
            "That many arrived",
        ),
        "nothing": ("lost_rows = lambda taken, chunk: 0", "the rest, 34, is lost"),
    },
    "04.6": {
        "divided": ("workers_fed = lambda l, r, w: l / r / w", "You divide by `collect_steps`"),
        "inverted": ("workers_fed = lambda l, r, w: w / (l * r)", "That is inverted"),
        "no ratio": ("workers_fed = lambda l, r, w: l / w", "You left out `collect_steps`"),
        "whole": ("workers_fed = lambda l, r, w: l * r // w", "Do not round"),
        "rounded up": ("workers_fed = lambda l, r, w: np.ceil(l * r / w)", "Do not round"),
        "a guess": ("workers_fed = lambda l, r, w: 7", "uses 600 env steps a second"),
    },
    "04.7": {
        "float64": (
            "traffic = lambda o, a, w, p: (8 * (2 * o + a + 2), 8 * w / p)",
            "A float32 has 4 bytes",
        ),
        "no next": (
            "traffic = lambda o, a, w, p: (4 * (o + a + 2), 4 * w / p)",
            "A row has the next observation",
        ),
        "no reward": (
            "traffic = lambda o, a, w, p: (4 * (2 * o + a), 4 * w / p)",
            "a reward and a discount",
        ),
        "each step": (
            "traffic = lambda o, a, w, p: (4 * (2 * o + a + 2), 4 * w)",
            "That is one pull",
        ),
        "one number": ("traffic = lambda o, a, w, p: 4 * w", "Return two numbers"),
        "values": ("traffic = lambda o, a, w, p: (2 * o + a + 2, w / p)", "A row is [obs"),
        "weights": (
            "traffic = lambda o, a, w, p: (4 * (2 * o + a + 2), w / p)",
            "One pull has 4 bytes for each weight",
        ),
    },
    "05.1": {
        "second": (
            "my_winner = 'n_step 1'",
            "'n_step 1' is number 2 of 3, with +9.50; first is 'baseline', with +12.00",
        ),
        "one run": ("my_winner = 'batch_size 32'", "has 1 seed, too few to tell skill"),
        "no setting": ("my_winner = 'default'", "No setting is called 'default'"),
    },
    "05.2": {
        "all": ("my_count = 2", "0.05 for 1 of 2: 'gamma 0.5'. You say 2. Not every"),
        "none": ("my_count = 0", "0.05 for 1 of 2: 'gamma 0.5'. You say 0."),
        "a name": ("my_count = 'gamma 0.5'", "must be a number"),
    },
    "05.3": {
        "not the first": ("my_furthest = 'gamma 0.5'", "walks 2.5 m and is number 3 of 3"),
        "no setting": ("my_furthest = 'the best'", "No setting with 2 seeds or more is called"),
        "one seed": ("my_furthest = 'batch_size 32'", "with 2 seeds or more is called 'batch_size"),
    },
    "05.4": {
        "runs": (
            "distinct_seeds = lambda t, setting: (t.setting == setting).sum()",
            "'baseline' has 6 runs of 5 seeds, you say 6. You count runs",
        ),
        "all settings": (
            "distinct_seeds = lambda t, setting: t.seed.nunique()",
            "You count the seeds of all settings",
        ),
        "one": ("distinct_seeds = lambda t, setting: 0", "Select the setting's rows"),
        "the highest": (
            "distinct_seeds = lambda t, setting: t.seed.max() + 1",
            "You count the seeds of all settings",
        ),
    },
    "05.5": {
        "mean": ("interquartile_mean = np.mean", "one lucky seed moves it"),
        "median": ("interquartile_mean = np.median", "That is the median"),
        "not sorted": (
            "interquartile_mean = lambda v: v[len(v) // 4 : len(v) - len(v) // 4].mean()",
            "Sort the values first",
        ),
        "rounded up": (
            "interquartile_mean = lambda v: np.sort(v)[-(-len(v) // 4) : -1].mean()",
            "A quarter is rounded down",
        ),
        "one at each end": (
            "def interquartile_mean(v):\n"
            "    v = np.sort(v)\n"
            "    return v[1:-1].mean() if len(v) >= 4 else v.mean()",
            "You always leave out one value at each end: of 8 values it must be 2.",
        ),
        "one at each end, unchecked": (
            "interquartile_mean = lambda v: np.sort(v)[1:-1].mean()",
            "You always leave out one value at each end",
        ),
        "percentiles": (
            "def interquartile_mean(v):\n"
            "    low, high = np.percentile(v, [25, 75])\n"
            "    return v[(v >= low) & (v <= high)].mean()",
            "A quarter is rounded down: of 11 values 2 at each end",
        ),
        "to the next": (
            "def interquartile_mean(v):\n"
            "    quarter = int(np.ceil(len(v) / 4))\n"
            "    return np.sort(v)[quarter : len(v) - quarter].mean()",
            "A quarter is rounded down: of 11 values 2 at each end",
        ),
        "to the nearest": (
            "def interquartile_mean(v):\n"
            "    quarter = round(len(v) / 4 - 0.01)\n"
            "    return np.sort(v)[quarter : len(v) - quarter].mean() if len(v) > 3 else v.mean()",
            "A quarter is rounded down: of 11 values 2 at each end",
        ),
    },
    "05.6": {
        "by place": ("beats = lambda a, b: np.mean(a > b[: len(a)])", "You compare by place"),
        "the other": (
            "beats = lambda a, b: np.mean(a[:, None] < b)",
            "That is how often the other one wins",
        ),
        "means": ("beats = lambda a, b: np.mean(a) > np.mean(b)", "You compare the means"),
        "ties lost": ("beats = lambda a, b: np.mean(a[:, None] > b)", "A tie counts half"),
        "ties won": ("beats = lambda a, b: np.mean(a[:, None] >= b)", "A tie counts half"),
        "a sum": ("beats = lambda a, b: np.sum(a[:, None] > b)", "There are 2 × 2 pairs"),
    },
    "05.7": {
        "mean": ("best_of = lambda n: 0.0", "That is the mean of all"),
        "always three": ("best_of = lambda n: 3 / (2 * np.sqrt(np.pi))", "does not depend on n"),
        "too few": ("best_of = lambda n: 0.9", "simulate 100 000 studies of normal scores"),
        "far off": ("best_of = lambda n: float(n)", "average the highest"),
    },
    "05.8": {
        "one-sided": (
            "from math import comb\nclean_sweep = lambda n: 1 / comb(2 * n, n)",
            "Either setting may win",
        ),
        "by place": ("clean_sweep = lambda n: 0.5**n", "all with all must agree"),
        "never": ("clean_sweep = lambda n: 0.0", "Count the ways to choose"),
    },
    "05.9": {
        "own middle": (
            "def coverage(interval, n):\n"
            "    samples = np.random.default_rng(0).normal(size=(1_000, n))\n"
            "    return np.mean([interval(v)[0] <= v.mean() <= interval(v)[1] for v in samples])",
            "always contains the mean of its own sample",
        ),
        "a count": (
            "def coverage(interval, n):\n"
            "    samples = np.random.default_rng(0).normal(size=(2_000, n))\n"
            "    return sum(low <= 0 <= high for low, high in map(interval, samples))",
            "divide by the number of studies",
        ),
        "a new value": (
            "def coverage(interval, n):\n"
            "    draw = np.random.default_rng(0).normal\n"
            "    studies = [(interval(draw(size=n)), draw()) for _ in range(2_000)]\n"
            "    return np.mean([low <= new <= high for (low, high), new in studies])",
            "Ask for the true mean, 0, and not for a new value",
        ),
        "misses": (
            "def coverage(interval, n):\n"
            "    samples = np.random.default_rng(0).normal(size=(2_000, n))\n"
            "    return np.mean([not low <= 0 <= high for low, high in map(interval, samples)])",
            "You count the intervals that miss",
        ),
        "always five": (
            "def coverage(interval, n):\n"
            "    samples = np.random.default_rng(0).normal(size=(2_000, 5))\n"
            "    return np.mean([low <= 0 <= high for low, high in map(interval, samples)])",
            "For n = 20 your function passes 5 values to `interval`",
        ),
        "always fifty": (
            "def coverage(interval, n):\n"
            "    samples = np.random.default_rng(0).normal(size=(2_000, 50))\n"
            "    return np.mean([low <= 0 <= high for low, high in map(interval, samples)])",
            "For n = 5 your function passes 50 values to `interval`",
        ),
        "promised": ("coverage = lambda interval, n: 0.95", "covers 68%: you find 95%"),
    },
    "06.1": {
        "from most to least": (
            "score = {f: card.iqm[(card.factor == f) & (card.value == v)].item() "
            "for f, v in three}\n"
            "my_order = sorted(score, key=score.get)",
            "That is from most to least",
        ),
        "two changed places": (
            "score = {f: card.iqm[(card.factor == f) & (card.value == v)].item() "
            "for f, v in three}\n"
            "right = sorted(score, key=score.get, reverse=True)\n"
            "my_order = [right[1], right[0], right[2]]",
            "from least to most harm, are: ",
        ),
        "one name": ("my_order = ['payload_kg']", "must be a list of "),
        "a number": ("my_order = 3", "must be a list of "),
    },
    "06.2": {
        "percent": ("my_noise = 100 * breaks", "write the share"),
        "not in the grid": ("my_noise = 0.073", "choose one of these"),
        "too much": ("my_noise = 0.4", "already broken with less noise"),
        "too little": ("my_noise = 0.03", "not yet broken there"),
        "a word": ("my_noise = 'much'", "must be a number, but it is"),
    },
    "06.3": {
        "around": (
            "delay_line = lambda commands, late, stand: np.roll(commands, late, axis=0)",
            "arrive before they were chosen",
        ),
        "zeros": (
            "delay_line = lambda commands, late, stand: np.concatenate("
            "[np.zeros((late, 2)), commands])[: len(commands)]",
            "the motors have `stand`",
        ),
        "too long": (
            "delay_line = lambda commands, late, stand: np.concatenate("
            "[np.tile(stand, (late, 1)), commands])",
            "yours has shape (8, 2)",
        ),
        "early": (
            "delay_line = lambda commands, late, stand: np.concatenate("
            "[commands[late:], np.tile(stand, (late, 1))])",
            "forward in time",
        ),
        "one step short": (
            "delay_line = lambda commands, late, stand: np.concatenate("
            "[np.tile(stand, (late + 1, 1)), commands])[: len(commands)]",
            "the one chosen at t − 2",
        ),
    },
    "06.4": {
        "outside": (
            "temper = lambda mean, std, noise, temperature: "
            "np.tanh(mean) + temperature * std * noise",
            "the noise is added before the tanh",
        ),
        "no tanh": (
            "temper = lambda mean, std, noise, temperature: mean + temperature * std * noise",
            "the tanh comes last",
        ),
        "mean too": (
            "temper = lambda mean, std, noise, temperature: "
            "np.tanh(temperature * (mean + std * noise))",
            "not the mean",
        ),
        "not used": (
            "temper = lambda mean, std, noise, temperature: np.tanh(mean + std * noise)",
            "you forget the temperature",
        ),
        "clipped": (
            "temper = lambda mean, std, noise, temperature: "
            "np.clip(mean + temperature * std * noise, -1, 1)",
            "clipping gives another action",
        ),
        "variance": (
            "temper = lambda mean, std, noise, temperature: "
            "np.tanh(mean + temperature * np.sqrt(std) * noise)",
            "do not take its root",
        ),
    },
    "06.5": {
        "independent": (
            "paired_error = lambda a, b: np.sqrt((np.var(a, ddof=1) + np.var(b, ddof=1)) / len(a))",
            "You treat the two as independent",
        ),
        "one difference": (
            "paired_error = lambda a, b: np.std(a - b, ddof=1)",
            "divide by the root of n",
        ),
        "population": ("paired_error = lambda a, b: np.std(a - b) / len(a) ** 0.5", "use n − 1"),
        "mean": ("paired_error = lambda a, b: np.mean(a - b)", "That is the mean difference"),
        "always 20": (
            "paired_error = lambda a, b: np.std(a - b, ddof=1) / 20**0.5",
            "For 9 pairs it is",
        ),
        "zero": ("paired_error = lambda a, b: 0.0", "one difference for each seed"),
    },
}

ALSO_RIGHT: list[tuple[str, str]] = [  # number, code
    ("01.1", pairs(6, "[-6, -1]").replace("writer.history[[-6, -1]]", TWO_COLUMNS)),
    ("01.1", pairs(6, "[-6, -1]").replace("writer.history[[-6, -1]]", NAMED_COLUMNS)),
    ("01.7", "deliver = lambda writer: [writer.append(np.zeros(100, np.uint8)) for _ in range(9)]"),
    (
        "02.9",
        "def n_step_target(r, d, v, g):\n"
        "    before = np.concatenate([[1], g * d]).cumprod()\n"
        "    return before[:-1] @ r + before[-1] * v",
    ),
    (
        "02.7",
        "largest_deviation = lambda c: np.abs(c - c.mean()).max()"
        " / np.sqrt(c.mean() * (1 - 1 / len(c)))",
    ),
    (
        "04.1",
        "def as_they_come(ray, refs):\n"
        "    while refs:\n"
        "        ready, refs = ray.wait(refs)\n"
        "        yield ray.get(ready[0])",
    ),
    (
        "04.1",
        "def as_they_come(ray, refs):\n"
        "    results = []\n"
        "    while refs:\n"
        "        ready, refs = ray.wait(refs, timeout=0.5, fetch_local=False)\n"
        "        results += ray.get(ready)\n"
        "    return results",
    ),
    (
        "04.2",
        "def push(server, version, weights):\n"
        "    if version > server['version']:\n"
        "        server.update(version=version, weights=weights.tolist())",
    ),
    (
        "05.8",
        "def clean_sweep(n):\n"
        "    drawn = np.random.default_rng(0).normal(size=(100_000, 2, n))\n"
        "    low, high = drawn.min(axis=2), drawn.max(axis=2)\n"
        "    return np.mean((low[:, 0] > high[:, 1]) | (low[:, 1] > high[:, 0]))",
    ),
    (
        "05.5",
        "from scipy import stats\ninterquartile_mean = lambda v: stats.trim_mean(v, 0.25)",
    ),
    (
        "05.9",
        "def coverage(interval, n):\n"
        "    draw = np.random.default_rng(0).normal\n"
        "    studies = [interval(draw(size=n).tolist()) for _ in range(2_000)]\n"
        "    return sum(low < 0 < high for low, high in studies) / len(studies)",
    ),
]
