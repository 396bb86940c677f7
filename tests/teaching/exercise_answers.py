"""A wrong answer to each exercise, as a reader may give it, and part of its diagnosis.

Names are those of the notebook. `ALSO_RIGHT` differs from the solution of the notebook.
"""

WRONG: dict[str, tuple[str, str]] = {  # number: (code, part of the diagnosis)
    "01.1": (
        """def write_pairs(client, observations):
    with client.trajectory_writer(num_keep_alive_refs=5) as writer:
        for t, observation in enumerate(observations):
            writer.append(observation)
            if t >= 5:
                writer.create_item("pairs", priority=1.0, trajectory=writer.history[[-6, -1]])""",
        "A window of 5 no longer holds the first step",
    ),
    "01.2": ("sharing_factor = lambda T, L: L", "are in fewer than L items"),
    "01.3": ("exponent = lambda p, ratio: ratio / p", "an exponent, p^α, and not a factor"),
    "01.4": (
        """def best_table(name):
    selectors, limiter = reverb.selectors, reverb.rate_limiters.MinSize(1)
    return reverb.Table(name, selectors.Uniform(), selectors.MaxHeap(), 4, limiter)""",
        "It kept the lowest, [1.0, 2.0, 3.0, 4.0]",
    ),
    "01.5": (
        "my_order = 'I' + 2 * 'ssssssssI' + 's'",
        "Request 2 of your answer is wrong: the balance is 8 there, and an insert would",
    ),
    "01.6": ("freed_bytes = lambda n, chunk, k: 100 * k", "A chunk stays whole while one"),
    "01.7": ("deliver = lambda writer: time.sleep(0.2)", "however long you wait"),
    "02.1": (
        "index_of = lambda k, n, c: k - max(0, n - c) if max(0, n - c) <= k < n else -1",
        "its place in the order of time",
    ),
    "02.2": ("probabilities = lambda d, a, e: np.abs(d)**a / np.sum(np.abs(d)**a)", "ε is missing"),
    "02.3": ("importance_weights = lambda p, b: (p / p.max()) ** b", "must weigh less"),
    "02.4": (
        "ready = lambda b, n: (b.size if hasattr(b, 'size') else b.num_frames()) > 0",
        "You say True. One step is not enough for a window of two",
    ),
    "02.5": (
        """def every_window(steps):
    options = {"batch_size": 1, "max_length": 8, "dataset_window_shift": 1}
    buffer = tf_uniform.TFUniformReplayBuffer(buffer_comparison.counted_spec(), **options)
    for step in steps:
        buffer.add_batch(buffer_comparison.batched(step))
    one_pass = buffer.as_dataset(num_steps=2, single_deterministic_pass=True)
    windows = [window.observation.numpy().tolist() for window, _ in one_pass]
    return windows""",
        "cut to one step, [12]",
    ),
    "02.6": ("within_episodes = lambda windows: windows", "crosses an episode boundary"),
    "02.7": (
        "largest_deviation = lambda c: np.abs(c - c.mean()).max() / np.sqrt(c.mean())",
        "n p (1 − p), not n p",
    ),
    "02.8": (
        """def save_and_restore(buffer, fresh, folder):
    for old, new in zip(buffer.variables(), fresh.variables()):
        new.assign(old)""",
        "a copy in memory is lost",
    ),
    "02.9": (
        "n_step_target = lambda r, d, v, g: r.sum() + g * d.prod() * v",
        "by the steps before it. The value comes 5 steps later: γ^5, not γ.",
    ),
    "03.1": (
        "stored_discount = lambda fell, step, limit: float(not fell and step < limit)",
        "The time limit only interrupts the task (truncation)",
    ),
    "03.2": ("horizon = lambda g, share: 1 / (1 - g)", "the sum of all powers of γ"),
    "03.3": (
        """def squashed_log_prob(u, m, s, h):
    normal = -0.5 * ((u - m) / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)
    slope = 2 * (np.log(2) - u - np.logaddexp(0, -2 * u))
    return np.sum(normal - np.log(h))""",
        "You forgot the log-determinant",
    ),
    "03.4": (
        """def row_target(r, d, q, p, l, a, g):
    f = g ** np.arange(len(r))
    return f @ r + g ** len(r) * (min(q, p) - a * l)""",
        "a discount of 0 ends the sum",
    ),
    "03.5": (
        """def policy_loss(mean, deviation, noise, critics, log_prob, alpha):
    u = mean + deviation * noise
    q, log_pi = tf.minimum(*critics(tf.tanh(u))), log_prob(u, mean, deviation)
    return tf.reduce_mean(alpha * log_pi + q)""",
        "Q has the wrong sign",
    ),
    "03.6": (
        "next_log_alpha = lambda a, l, h, rate: a + rate * np.mean(-l - h)",
        "Your α moves the wrong way: the policy is more random than the target",
    ),
    "03.7": (
        """def follow(critic, target, tau):
    for w, t in zip(critic, target):
        t.assign((1 - tau) * w + tau * t)""",
        "τ and 1 − τ are swapped",
    ),
    "03.8": ("row_bytes = lambda o, a: 4 * (o + a + 2)", "before and after the action"),
    "03.9": ("actions_per_fall = lambda d, n: 1 / np.mean(d == 0)", "so you count it 5 times"),
    "03.10": ("replica_loss = lambda e, n: np.sum(e)", "You sum without dividing"),
    "04.1": (
        """def as_they_come(ray, refs):
    results = []
    while refs:
        ready, _ = ray.wait(refs)
        results += [ray.get(ready[0])]
    return results""",
        "Your loop still runs: wait for the second list",
    ),
    "04.2": (
        """class ParameterServer:
    def __init__(self, weights):
        self.push(0, weights)
    def push(self, version, weights):
        self.version, self.weights = version, weights
    def pull(self):
        return self.version, self.weights""",
        "your version 10 changed too: copy",
    ),
    "04.3": (
        """class Replay(Replay):
    def sample(self, count):
        return self.rows[self.generator.integers(len(self.rows), size=count)]""",
        "places that were never written",
    ),
    "04.4": (
        "merge = lambda server, pulled, pushed: pushed",
        "The last push wins, and the first learner's step is lost",
    ),
    "05.1": ("best_of = lambda n: 0.0", "That is the mean of all"),
    "05.2": (
        """def coverage(interval, n):
    samples = np.random.default_rng(0).normal(size=(1_000, n))
    return np.mean([interval(v)[0] <= v.mean() <= interval(v)[1] for v in samples])""",
        "always contains the mean of its own sample",
    ),
    "05.3": ("my_count = 2", "below 0.05 for 1 of 2; you say 2. A lower mean"),
    "05.4": (
        """from math import comb
clean_sweep = lambda n: 1 / comb(2 * n, n)""",
        "Either setting may win",
    ),
    "06.1": (
        "my_dose = 'payload'",
        "leaves a mean return of 22.6, and another dose leaves 5.4. It is a dose that a picture",
    ),
    "06.2": (
        "delay_line = lambda commands, late, stand: np.roll(commands, late, 0)",
        "arrive before they were chosen",
    ),
    "06.3": ("my_bets = []", "does not carry over to all"),
}

ALSO_RIGHT: list[tuple[str, str]] = [  # number, code
    (
        "02.9",
        """def n_step_target(r, d, v, g):
    before = np.concatenate([[1], g * d]).cumprod()
    return before[:-1] @ r + before[-1] * v""",
    ),
    (
        "04.1",
        """def as_they_come(ray, refs):
    while refs:
        ready, refs = ray.wait(refs)
        yield ray.get(ready[0])""",
    ),
    (
        "05.4",
        """def clean_sweep(n):
    scores = np.random.default_rng(0).normal(size=(200_000, 2, n))
    return np.mean((scores[:, 0].min(1) > scores[:, 1].max(1)) * 2)""",
    ),
]
