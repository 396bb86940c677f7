"""The example files for clusters are valid, complete and consistent with labkit's settings."""

from pathlib import Path

import pytest
import yaml
from ray.autoscaler._private import util

from labkit.distributed.ray_cluster import SYSTEM

FOLDER = Path(__file__).parents[2] / "examples" / "cluster"
LOCK = (FOLDER.parent.parent / "requirements.lock").read_text()


def test_the_file_for_rays_cluster_launcher_is_valid():
    config = yaml.safe_load((FOLDER / "cluster.yaml").read_text())
    prepared = util.prepare_config(dict(config))
    util.validate_config(prepared)  # against the schema of Ray's launcher
    with pytest.raises(Exception, match="'many' is not of type 'integer'"):
        util.validate_config({**prepared, "max_workers": "many"})
    for command in config["head_start_ray_commands"][1:] + config["worker_start_ray_commands"][1:]:
        assert "RAY_AUTH_MODE=token" in command
        assert f"RAY_worker_niceness={SYSTEM['worker_niceness']}" in command
    assert "~/.ray/auth_token" in config["file_mounts"]


def test_the_file_for_kuberay_is_complete():
    cluster, policy, claim = yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text())
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert f"ray=={cluster['spec']['rayVersion']}\n" in LOCK
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        settings = {entry["name"]: entry for entry in container["env"]}
        assert settings["RAY_AUTH_MODE"]["value"] == "token"
        assert "secretKeyRef" in settings["RAY_AUTH_TOKEN"]["valueFrom"]
        assert set(container["resources"]) == {"requests", "limits"}
    for group in groups[1:]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    scales = cluster["spec"].get("enableInTreeAutoscaling", False)
    for group in groups[1:]:  # without the autoscaler, KubeRay keeps `replicas`
        assert scales or group["minReplicas"] == group["replicas"] == group["maxReplicas"]
    (volume,) = groups[0]["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    (mount,) = groups[0]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert mount["name"] == volume["name"], "the results outlive the head"
    assert policy["kind"] == "NetworkPolicy"
    selector = policy["spec"]["podSelector"]["matchLabels"]
    assert selector == {"ray.io/cluster": cluster["metadata"]["name"]}
