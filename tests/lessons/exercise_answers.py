"""A wrong answer to each exercise, as a reader may give it, and part of its diagnosis.

Names are those of the notebook. `ALSO_RIGHT` differs from the solution of the notebook.
"""

WRONG: dict[str, tuple[str, str]] = {  # number: (code, part of the diagnosis)
    "01.1": ("sharing_factor = lambda T, L: L", "are in fewer than L items"),
    "01.2": (
        """def write_pairs(client, observations):
    with client.trajectory_writer(num_keep_alive_refs=5) as writer:
        for t, observation in enumerate(observations):
            writer.append(observation)
            if t >= 5:
                writer.create_item("pairs", priority=1.0, trajectory=writer.history[[-6, -1]])""",
        "A window of 5 no longer holds the first step",
    ),
    "01.3": (
        """def best_table(name):
    selectors, limiter = reverb.selectors, reverb.rate_limiters.MinSize(1)
    return reverb.Table(name, selectors.Uniform(), selectors.MaxHeap(), 4, limiter)""",
        "It kept the lowest, [1.0, 2.0, 3.0, 4.0]",
    ),
    "01.4": (
        "my_order = 'I' + 2 * 'ssssssssI' + 's'",
        "Request 2 is wrong: the balance is 8 there, and an insert to 16 goes first",
    ),
    "02.1": (
        "index_of = lambda k, n, c: k - max(0, n - c) if max(0, n - c) <= k < n else -1",
        "its place in the order of time",
    ),
    "02.2": (
        "n_step_target = lambda r, d, v, g: g ** np.arange(len(r)) @ r + g * d.prod() * v",
        "The value comes 5 steps later: γ^5, not γ.",
    ),
    "02.3": (
        "ready = lambda b, n: (b.size if hasattr(b, 'size') else b.num_frames()) > 0",
        "you say True. One step is not a window of two",
    ),
    "02.4": ("within_episodes = lambda windows: windows", "crosses an episode boundary"),
    "03.1": ("log_slope = lambda u: tf.math.log(1 - tf.tanh(u) ** 2)", "Right for small u. At u"),
    "03.2": (
        "soft_target = lambda r, d, p, q, l, a, g: r + g * (tf.minimum(p, q) - a * l)",
        "After a termination (d = 0) no reward follows",
    ),
    "03.3": (
        "alpha_loss = lambda a, l, h: a * tf.reduce_mean(l + h)",
        "α must fall, so the gradient by log α is 2; yours is -2. Your α moves the wrong way.",
    ),
    "03.4": ("replica_loss = lambda e, n: tf.reduce_mean(e)", "but the gradients are added"),
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
        "02.2",
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
