"""The example files for clusters are valid, and each process in them has Ray's token."""

from pathlib import Path

import yaml
from ray.autoscaler._private import util

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "cluster"


def test_the_file_for_rays_cluster_launcher_is_valid():
    config = yaml.safe_load((FOLDER / "cluster.yaml").read_text())
    util.validate_config(util.prepare_config(dict(config)))  # the schema of Ray's launcher
    for command in config["head_start_ray_commands"][1:] + config["worker_start_ray_commands"][1:]:
        assert "RAY_AUTH_MODE=token" in command
    assert "~/.ray/auth_token" in config["file_mounts"]


def test_the_file_for_kuberay_is_complete():
    cluster, policy, claim = yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text())
    assert f"ray=={cluster['spec']['rayVersion']}\n" in (ROOT / "requirements.lock").read_text()
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        settings = {entry["name"]: entry for entry in container["env"]}
        assert settings["RAY_AUTH_MODE"]["value"] == "token"
        assert "secretKeyRef" in settings["RAY_AUTH_TOKEN"]["valueFrom"]
    (volume,) = groups[0]["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    selector = policy["spec"]["podSelector"]["matchLabels"]
    assert selector == {"ray.io/cluster": cluster["metadata"]["name"]}
