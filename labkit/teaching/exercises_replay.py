"""What the usual mistakes make of an n-step target, for the exercises of notebook 03."""

import numpy as np

USUAL_N = 5  # env steps of a row


def target_parts(
    rewards: np.ndarray, discounts: np.ndarray, gamma: float
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """What the usual mistakes make of a target's parts; see `mistakes`.

    The parts are the sum of the rewards, and the factors of the value by γ and by the discounts.
    """
    n, own = len(rewards), np.cumprod(discounts)  # [n] float64
    powers, before = gamma ** np.arange(n), np.append(1.0, discounts[:-1])  # both [n] float64
    sums = {
        "": powers @ (rewards * np.cumprod(before)),
        "Each reward is discounted by the steps before it.": rewards.sum(),
        "The first reward is not discounted: γ^0.": gamma * powers @ rewards,
        "A discount multiplies the rewards after it, not the reward of its own step.": (
            powers @ (rewards * own)
        ),
        "A discount multiplies all later rewards, not only the next one.": (
            powers @ (rewards * before)
        ),
        "A discount also multiplies all later rewards, not only the value.": powers @ rewards,
    }
    factors = {
        "": gamma**n,
        f"The value comes {n} steps later: γ^{n}, not γ.": gamma,
        f"The value comes one step after the last reward: γ^{n}.": powers[-1],
        "The value is discounted, too.": 1.0,
        f"γ^{USUAL_N} is right for {USUAL_N} steps only: take n from len(rewards).": gamma**USUAL_N,
    }
    ends = {
        "": own[-1],
        "You use only the last discount: each one multiplies all that comes after it.": (
            discounts[-1]
        ),
        "The episode terminated in this row: a discount of 0 ends the sum.": 1.0,
    }
    return sums, factors, ends
