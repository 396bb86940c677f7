"""Wrong answers to the exercises: for each, its source code and the diagnosis that it must get.

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


WRONG: dict[str, Wrong] = {
    "01.1": {
        "window of 5": (pairs(5, "[-6, -1]"), "A window of 5 has forgotten the first step"),
        "window of 8": (pairs(8, "[-6, -1]"), "a window of 8 keeps more steps"),
        "a slice": (pairs(6, "-6:"), "a slice takes all between its ends"),
        "four steps": (pairs(6, "[-5, -1]"), "your first item are 4 steps apart: [1, 5]"),
        "no item": ("write_pairs = lambda client, observations: [0]", "The table is empty"),
        "an error": ("write_pairs = lambda client: 0", "Your answer raised TypeError: "),
    },
    "01.2": {
        "ends forgotten": ("sharing_factor = lambda T, L: L", "are in fewer than L items"),
        "one item short": (
            "sharing_factor = lambda T, L: L * (T - L) / T",
            "There is one item more: 9 of them, not 8",
        ),
        "upside down": ("sharing_factor = lambda T, L: T / (L * (T - L + 1))", "upside down"),
        "no number": ("sharing_factor = lambda T, L: 'three'", "must be a number, but it is"),
    },
    "01.3": {
        "a factor": ("exponent = lambda p, ratio: ratio / p", "an exponent, p^α, and not a factor"),
        "upside down": (
            "exponent = lambda p, ratio: np.log(p) / np.log(ratio)",
            "The logarithms are upside down",
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
            "The check waited in vain: it gave up waiting to insert after 1 s",
        ),
        "a name": ("best_table = lambda name: name", "must return a reverb.Table"),
    },
    "01.5": {
        "one insert first": (
            "my_order = 'I' + 2 * 'ssssssssI' + 's'",
            "Request 2 is another one: the balance is 8 there, and an insert would raise it to 16",
        ),
        "two and two": (
            "my_order = 'II' + 16 * 's' + 'II'",
            "Request 11 is another one: the balance is 8 there",
        ),
        "three inserts": ("my_order = 'III' + 17 * 's'", "raise it to 24, above the limit of 16"),
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
}
