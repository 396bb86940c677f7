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
        "your loop still runs: wait for the second list",
    ),
    "04.2": (
        """def push(server, version, weights):
    if version > server['version']:
        server.update(version=version, weights=weights)""",
        "Your server keeps the learner's own array",
    ),
    "04.3": ("follow = lambda t, c, tau, steps: c", "That is a full copy"),
    "04.4": (
        "merge = lambda server, pulled, pushed: pushed",
        "The last push wins, and the first learner's step is lost",
    ),
    "04.5": ("lost_rows = lambda taken, chunk: chunk", "the most that can be lost"),
    "04.6": ("workers_fed = lambda l, r, w: l / r / w", "You divide by `collect_steps`"),
    "04.7": (
        "traffic = lambda o, a, w, p: (8 * (2 * o + a + 2), 8 * w / p)",
        "A float32 has 4 bytes",
    ),
    "05.1": (
        "my_winner = 'n_step 1'",
        "'n_step 1' is number 2 of 3, with +9.50; first is 'baseline', with +12.00",
    ),
    "05.2": ("my_count = 2", "0.05 for 1 of 2: 'gamma 0.5'. You say 2. Not every"),
    "05.3": ("my_furthest = 'gamma 0.5'", "walks 2.5 m and is number 3 of 3"),
    "05.4": (
        "distinct_seeds = lambda t, setting: (t.setting == setting).sum()",
        "'baseline' has 6 runs of 5 seeds, you say 6. You count runs",
    ),
    "05.5": ("interquartile_mean = np.mean", "one lucky seed moves it"),
    "05.6": ("beats = lambda a, b: np.mean(a > b[: len(a)])", "You compare by place"),
    "05.7": ("best_of = lambda n: 0.0", "That is the mean of all"),
    "05.8": (
        """from math import comb
clean_sweep = lambda n: 1 / comb(2 * n, n)""",
        "Either setting may win",
    ),
    "05.9": (
        """def coverage(interval, n):
    samples = np.random.default_rng(0).normal(size=(1_000, n))
    return np.mean([interval(v)[0] <= v.mean() <= interval(v)[1] for v in samples])""",
        "always contains the mean of its own sample",
    ),
    "06.1": (
        """score = {f: card.iqm[(card.factor == f) & (card.value == v)].item() for f, v in three}
my_order = sorted(score, key=score.get)""",
        "That is from most to least",
    ),
    "06.2": ("my_noise = 100 * breaks", "write the share"),
    "06.3": (
        "delay_line = lambda commands, late, stand: np.roll(commands, late, axis=0)",
        "arrive before they were chosen",
    ),
    "06.4": (
        "temper = lambda mean, std, noise, temperature: np.tanh(mean) + temperature * std * noise",
        "the noise is added before the tanh",
    ),
    "06.5": (
        "paired_error = lambda a, b: np.sqrt((np.var(a, ddof=1) + np.var(b, ddof=1)) / len(a))",
        "You treat the two as independent",
    ),
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
        "05.5",
        """from scipy import stats
interquartile_mean = lambda v: stats.trim_mean(v, 0.25)""",
    ),
]
