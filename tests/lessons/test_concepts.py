"""Each concept of the four source documents keeps a cell that explains it and one that runs it."""

import books
import pytest

# Source document and notebook → (concept, cell that explains it, cell that runs it, its code).
CONCEPTS = {
    "01": [
        ("environment and its shapes", "agent-text", "picture", "TensorSpec([10, 10], tf.uint8)"),
        ("actions", "agent-text", "picture", "ACTION_SPEC = tf.TensorSpec([2], tf.float32)"),
        ("prioritised table", "s1", "make-table", "Prioritized(priority_exponent=0.8)"),
        ("signature", "s1", "make-table", '"actions": tf.TensorSpec([3, *ACTION_SPEC.shape]'),
        ("writer", "s1-write-text", "write-overlapping", "trajectory_writer(num_keep_alive_refs="),
        (
            "overlapping items",
            "s1-write-text",
            "write-overlapping",
            'writer.history["action"][-3:]',
        ),
        ("num_keep_alive_refs", "s2", "s2-windows", "for num_keep_alive_refs in (2, 3, 4):"),
        ("two processes", "s3", "s3-program", "reverb.Server(tables=[table], port="),
        ("dataset", "s3-read-text", "s3-read", "TrajectoryDataset.from_table_signature("),
        ("prefetch", "s3-read-text", "s3-read", "max_in_flight_samples_per_worker=10"),
        ("batches of two", "s3-read-text", "s3-read", "dataset.batch(2).take(2)"),
        ("sample info", "s3-read-text", "s3-read", "sample.info.probability"),
    ],
    "02": [
        ("common API", "api", "table", "buffers.api_table(all_buffers, lines, globals())"),
        ("TFUniformReplayBuffer", "api", "tf-create", "TFUniformReplayBuffer("),
        ("add_batch", "tf-write-text", "tf-write", "tf_buffer.add_batch(values_batched)"),
        ("get_next", "tf-read-text", "tf-read", "get_next(sample_batch_size=10, num_steps=1)"),
        ("as_dataset", "tf-read-text", "tf-read", "as_dataset(sample_batch_size=4, num_steps=2)"),
        ("gather_all", "tf-read-text", "tf-read", "gather_all()"),
        ("PyUniformReplayBuffer", "tf-read-answer", "py-create", "to_nest_array_spec(data_spec)"),
        ("collect_data_spec", "collect", "collect-agent", "agent.collect_data_spec"),
        ("driver", "collect-driver-text", "collect-driver", "observers=replay_observer"),
        ("train step", "train-step", "train-step-code", "train_step(experience=trajectories)"),
    ],
    "03": [
        ("environment", "robot-intro", "robot-observation", "labkit.make_environment("),
        ("hyperparameters", "c159c4d9", "start-run", "labkit.start_run(globals()"),
        ("separate environments", "parts-intro", "parts-agent", "collect_env, eval_env ="),
        ("strategy and scope", "mirror-intro", "parts-sac-agent", "with devices.scope():"),
        ("networks", "parts-intro", "parts-agent", "ScaledActorNetwork("),
        ("agent", "parts-intro", "parts-sac-agent", "sac_agent.SacAgent("),
        ("table, rate limiter", "parts-table-text", "parts-table", "rate_limiters.MinSize(1)"),
        ("replay buffer", "parts-table-text", "parts-table", "ReverbReplayBuffer("),
        ("dataset", "parts-learner-text", "parts-learner", "as_dataset("),
        ("policies", "parts-policies-text", "parts-actors", "PyTFEagerPolicy"),
        ("random policy", "parts-policies-text", "parts-collect", "RandomPyPolicy("),
        ("observer", "parts-policies-text", "parts-collect", "ReverbAddTrajectoryObserver("),
        ("actors", "parts-policies-text", "parts-actors", "collect_actor = actor.Actor("),
        ("learner", "parts-learner-text", "parts-learner", "learner.Learner("),
        ("triggers", "parts-learner-text", "parts-learner", "PolicySavedModelTrigger("),
        ("metrics", "parts-policies-text", "parts-loop", "for metric in eval_actor.metrics:"),
        ("training loop", "parts-learner-text", "parts-loop", "agent_learner.run(iterations=1)"),
        ("the whole run", "run-train-text", "run-train", "labkit.train(config, run=run)"),
        ("learning curve", "run-curve-text", "run-curve", "curves.learning_curve"),
        ("video", "run-after-text", "run-after", "video.record_episode("),
        ("replicas", "mirror-intro", "mirror-rows", 'mirrored(["/cpu:0", "/cpu:1"])'),
        ("batch of a Learner", "mirror-learner-text", "mirror-learner", "distribute_datasets_from"),
    ],
    "04": [
        ("ray.init, its memory", "picture-answer", "connect", "connection(address, cpus=4)"),
        ("tasks and references", "tasks-text", "tasks", "ray.get("),
        ("ray.wait", "wait-text", "wait", "ray.wait("),
        ("GPUs of the learner", "gpu-text", "gpu", "num_gpus=gpus + 1"),
        ("actor, critics, targets", "sac-text", "model", "self.critics, self.targets ="),
        ("gradient step of SAC", "sync-text", "update", "descend(adam[0], tape, loss, fast)"),
        ("set_weights and targets", "sync-text", "model", "def set_weights"),
        ("parameter server", "server-text", "sol-2", "class ParameterServer:"),
        ("its weights in a file", "server-text", "copy", "server.save.remote("),
        ("replay as an actor", "replay-text", "sol-3", "class Replay:"),
        ("rollout worker", "worker-text", "worker", "self.server.pull.remote()"),
        ("training", "learner-text", "learner", "self.server.push.remote("),
        ("evaluation", "learner-text", "evaluator", "labkit.evaluate("),
        ("all actors together", "together-text", "together", "RolloutWorker.remote("),
        ("several learners", "two-text", "two", "two = [Learner.remote("),
        ("LunarLander, in many processes", "labkit-text", "on-ray", "train_on_ray("),
    ],
}


@pytest.mark.parametrize(
    ("notebook", "concept", "explained", "ran", "code"),
    [(notebook, *row) for notebook, rows in CONCEPTS.items() for row in rows],
)
def test_a_concept_of_a_source_document_is_explained_and_runs(
    notebook, concept, explained, ran, code
):
    cells = {cell.id: cell for cell in books.read(notebook).cells}
    assert cells[explained].cell_type == "markdown", concept
    assert code in cells[ran].source, concept
    assert cells[ran].execution_count, concept
