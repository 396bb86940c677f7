"""The seeds of evaluations: which episodes a score is made of, on both executors."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import labkit
from labkit.distributed import workers
from labkit.sac.rollout import Evaluation
from labkit.training import local
from labkit.training.components import evaluation_seed
from labkit.training.run import open_run

SCORE = Evaluation((1.0,), (1.0,), (0.0,))


def test_a_final_evaluation_has_other_episodes_for_each_budget(small_config):
    budgets, seeds = (50_000, 90_000, 290_000), range(20)
    pairs = itertools.product(seeds, budgets)
    finals = [evaluation_seed(small_config(seed=s, num_iterations=n), True) for s, n in pairs]
    interim = {
        evaluation_seed(small_config(seed=s, num_iterations=n), False)
        for s, n in itertools.product(seeds, budgets)
    }
    assert len(set(finals)) == len(finals), "two budgets or seeds share their episodes"
    assert len(interim) == len(seeds), "interim evaluations differ between budgets"
    assert not interim & set(finals)
    again = evaluation_seed(small_config(seed=0, num_iterations=50_000), True)
    assert finals[0] == again, "a score cannot be reproduced"


@pytest.mark.parametrize("final", [True, False])
def test_every_seed_is_one_that_environments_accept(small_config, final):
    for seed in (0, 1, 2**31 - 1):
        found = evaluation_seed(small_config(seed=seed, num_iterations=10**9), final)
        assert type(found) is int
        assert 0 <= found < 2**31
        np.random.MT19937(found)


def test_a_continued_run_is_scored_by_new_episodes(small_config, tmp_path, monkeypatch):
    seen = []

    def play(env, policy, episodes, seed, **hooks):
        seen.append((episodes, seed))
        return SCORE

    monkeypatch.setattr(local, "evaluate", play)
    changes = {"env_name": "Pendulum-v1", "replay": "tf_uniform"}
    changes |= {"eval_interval": 0, "log_interval": 0}
    for steps in (1, 2):
        config = small_config(num_iterations=steps, num_eval_episodes=1, **changes)
        labkit.train(config, open_run(tmp_path, config))
    first, second = (evaluation_seed(small_config(num_iterations=steps), True) for steps in (1, 2))
    interim = evaluation_seed(small_config(), False)
    assert [seed for _, seed in seen if seed != interim] == [first, second]


@pytest.mark.parametrize("final", [True, False])
def test_the_evaluator_on_ray_plays_the_same_episodes(small_config, monkeypatch, final):
    config, seen = small_config(seed=7, num_iterations=11), []
    context = SimpleNamespace(config=config, environment=lambda seed: "environment")
    policy = SimpleNamespace(set_weights=lambda weights: None)
    monkeypatch.setattr(workers, "actor_policy", lambda *arguments: policy)
    monkeypatch.setattr(workers, "evaluate", lambda *given: seen.append(given[2:4]))
    workers.Evaluator(context).evaluate(np.zeros(3, np.float32), final)
    episodes = config.num_eval_episodes if final else config.interim_eval_episodes
    assert seen == [(episodes, evaluation_seed(config, final))]
