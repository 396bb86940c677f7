"""A trained policy in NumPy alone; `labkit export` writes this file as `policy.py`.

    from policy import Policy

    policy = Policy()  # policy.npz and SHA256SUMS beside this file
    action = policy(observation)  # [obs] → [act], or [batch, obs] → [batch, act], float32

Part of labkit. SPDX-License-Identifier: Apache-2.0
"""

import hashlib
import io
from pathlib import Path

import numpy as np


class Policy:
    """The deterministic policy: the mean action of the actor, within the action's bounds.

    `sha256` is the digest that `policy.npz` must have. Without it, `SHA256SUMS` names the digest:
    that finds a damaged file, but not one that was replaced together with its list.
    """

    def __init__(self, folder: str | Path = Path(__file__).parent, sha256: str = ""):
        data = (Path(folder) / "policy.npz").read_bytes()
        lines = (Path(folder) / "SHA256SUMS").read_text().splitlines()
        listed = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
        if hashlib.sha256(data).hexdigest() != (sha256 or listed["policy.npz"]):
            raise ValueError(f"{folder}/policy.npz is damaged: its SHA-256 is not the expected one")
        arrays = dict(np.load(io.BytesIO(data), allow_pickle=False))
        count = sum(name.startswith("kernel_") for name in arrays)
        self._layers = [(arrays[f"kernel_{n}"], arrays[f"bias_{n}"]) for n in range(count)]
        self._scale = arrays["observation_scale"]
        self._middle, self._half_range = arrays["action_middle"], arrays["action_half_range"]

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Returns the action for an observation as the environment gives it, unscaled.

        Raises:
            ValueError: the observation has another shape than the networks expect.
        """
        hidden = np.asarray(observation, np.float32)
        size = len(self._layers[0][0])
        if hidden.ndim not in (1, 2) or hidden.shape[-1] != size:
            raise ValueError(f"observation has shape {hidden.shape}; [{size}] or [batch, {size}]")
        hidden = hidden / self._scale
        for kernel, bias in self._layers[:-1]:
            hidden = np.maximum(hidden @ kernel + bias, 0.0)  # ReLU
        kernel, bias = self._layers[-1]
        return self._middle + self._half_range * np.tanh(hidden @ kernel + bias)
