"""What to do with the policy of a run: `labkit watch` records it, `labkit export` writes a folder.

The folder, to copy or to upload, holds:

README.md      the model card, from model_card.md here
policy/        the SavedModel, as the run saved it
policy.onnx    the same policy as ONNX
policy.npz     the same policy as arrays, and policy.py, which loads them with NumPy alone
config.json, metrics.csv    of the run; replay.mp4, its video, if it has one
"""

import importlib.util
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from labkit.config import SACConfig
from labkit.environments.make import make_environment
from labkit.errors import ParameterError, storage
from labkit.parameters import invalid
from labkit.plotting import video
from labkit.runtime import quiet
from labkit.sac import actor
from labkit.sac.rollout import load_actor
from labkit.training import records
from labkit.training.run import check_links


def record(run_dir: Path, seed: int, out: Path | None, max_steps: int = 1000) -> None:
    """Records an episode of at most `max_steps` env steps, and prints its return.

    `out` is a new MP4 file; None is runs/watch.mp4, which is replaced.

    Raises:
        ParameterError: `out` exists or is no MP4; the run has a symbolic link, or no policy, or is
            damaged; its environment is not the registered one.
        RunError, StorageError: see `video.record_episode`.
    """
    if out is not None and (out.suffix != ".mp4" or out.exists()):
        raise invalid("--out", str(out), "a new file whose name ends in .mp4")
    check_links(run_dir)
    config, content = records.read_config(run_dir), records.read_content(run_dir)
    policy = load_actor(run_dir / "policy", config.observation_scale)
    limit = (content.get("environment") or {}).get("max_episode_steps")
    with quiet():
        env = make_environment(config.env_name, None, limit)
    if differing := records.differences(run_dir, records.describe(env)):
        what = f"its environment came from make_env, or is another one here ({differing})"
        raise ParameterError(f"{run_dir} cannot be played: {what}")
    file = out or Path("runs/watch.mp4")
    one = video.record_episode(env, policy, file, seed=seed, max_steps=max_steps)
    print(f"return {one.return_:+.2f}, {one.steps} steps: {file}")


def export(run_dir: Path, out: Path | None) -> None:
    """Writes the new folder `out`, by default `exports/<the run's name>`.

    Raises:
        ParameterError: the run is damaged, or has a symbolic link or no policy; `out` exists; onnx
            is missing.
        StorageError: `out` cannot be written.
    """
    target = out or Path("exports") / run_dir.resolve().name
    if importlib.util.find_spec("onnx") is None:
        raise invalid("onnx", "none", "installed: pip install '.[export]' in labkit's folder")
    if target.exists():
        raise invalid("--out", str(target), "a new folder")
    check_links(run_dir)
    config = records.read_config(run_dir)
    arrays = load_actor(run_dir / "policy", config.observation_scale).arrays()
    card = model_card(run_dir, config, arrays)
    with storage(target), tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, "draft")  # so that a failure leaves nothing half-made in `out`
        shutil.copytree(run_dir / "policy", draft / "policy")
        shutil.copyfile(actor.__file__, draft / "policy.py")
        for name in ("config.json", "metrics.csv"):
            shutil.copy(run_dir / name, draft)
        for clip in run_dir.rglob("after.mp4"):
            shutil.copyfile(clip, draft / "replay.mp4")  # the name that Hugging Face plays
        np.savez(draft / "policy.npz", **arrays)
        (draft / "policy.onnx").write_bytes(onnx_model(arrays))
        (draft / "README.md").write_text(card)
        shutil.copytree(draft, target)
    print(f"exported; read {target / 'README.md'}, then: hf upload <you>/<name> {target}")


def onnx_model(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The deterministic policy as ONNX, from what `Actor.arrays` returns.

    It maps `observation [batch, obs]` to `action [batch, act]`, both float32. Converters from
    TensorFlow fail on the operations of TensorFlow Probability in the SavedModel.
    """
    import onnx

    low, high = arrays["low"], arrays["high"]
    values = {name: array for name, array in arrays.items() if name not in ("low", "high")}
    values |= {"half_range": (high - low) / 2, "middle": (high + low) / 2}
    last, size = len(arrays) // 2 - 2, len(low)
    for name in (f"kernel_{last}", f"bias_{last}"):
        values[name] = arrays[name][..., :size]  # the rest are log standard deviations
    nodes = ["x0 = Div(observation, scale)"]
    for n in range(last + 1):
        nodes += [f"m{n} = MatMul(x{n}, kernel_{n})", f"s{n} = Add(m{n}, bias_{n})"]
        nodes += [f"x{n + 1} = {'Relu' if n < last else 'Tanh'}(s{n})"]
    nodes += [f"scaled = Mul(x{last + 1}, half_range)", "action = Add(scaled, middle)"]
    given, returned = f"[batch, {len(arrays['kernel_0'])}] observation", f"[batch, {size}] action"
    text = f"policy (float{given}) => (float{returned}) {{ {' '.join(nodes)} }}"
    graph = onnx.parser.parse_graph(text)
    for name, array in values.items():
        stored = np.ascontiguousarray(array, np.float32)
        graph.initializer.append(onnx.numpy_helper.from_array(stored, name))
    # Those of ONNX 1.10, of 2021, so that old runtimes read the file, too.
    opsets = [onnx.helper.make_opsetid("", 15)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def model_card(run_dir: Path, config: SACConfig, arrays: Mapping[str, np.ndarray]) -> str:
    """The card in the format of Hugging Face, YAML and Markdown; every value is escaped."""
    table, score = records.read_metrics(run_dir), "none, it has not finished"
    if records.is_finished(run_dir, config):
        (*_, returns) = table.eval_returns[table.eval_returns.map(len) > 0]
        score = f"{np.mean(returns):.2f} ± {np.std(returns):.2f}, {len(returns)} episodes"
    values: dict[str, Any] = {
        "env_name": config.env_name,
        "observation_size": len(arrays["kernel_0"]),
        "action_size": len(arrays["low"]),
        "score": score,
        "env_steps": table.env_step.max(),
        "gradient_steps": table.gradient_step.max(),
        "seed": config.seed,
        "commit": records.read_content(run_dir).get("commit"),
    }
    shown = {name: escape(value) for name, value in values.items()}
    return Template(Path(__file__).with_name("model_card.md").read_text()).substitute(shown)


def escape(value: object) -> str:
    """A value as text for Markdown, in which no character is HTML or Markdown of its own."""
    return re.sub(r"[^\w .,±+-]", lambda match: f"&#{ord(match[0])};", str(value))
