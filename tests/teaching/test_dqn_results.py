"""The table of the tracked DQN runs that notebook 02 shows."""

from labkit.teaching import dqn_results


def test_tracked_runs_are_read_with_readable_headings(tmp_path):
    (tmp_path / "runs.csv").write_text(
        "seed,changed,value,mean_return,deviation,episodes,last_return,last_deviation,env_steps,"
        "training_seconds,cpu_seconds\n3,,,199.5,2.5,20,150.0,30.0,21000,40,38\n"
        "0,td_loss,huber,9.9,1.0,20,9.4,0.8,21000,41,39\n"
    )
    table = dqn_results.read_seed_runs(tmp_path / "runs.csv")
    assert table["ablated"].tolist() == ["nothing", "td_loss huber"]
    assert table["seed"].tolist() == [3, 0]
    assert table["kept"].tolist() == [199.5, 9.9]
    assert table["last round"].tolist() == [150.0, 9.4]
    assert table["training, s"].tolist() == [40, 41]
    assert table["CPU, s"].tolist() == [38, 39]


def test_runs_without_an_ablation_or_a_deviation_can_be_read(tmp_path):
    (tmp_path / "runs.csv").write_text(
        "seed,changed,value,mean_return,deviation,episodes,last_return,last_deviation,env_steps,"
        "training_seconds,cpu_seconds\n7,,,199.5,,1,150.0,,21000,40,38\n"
    )
    table = dqn_results.read_seed_runs(tmp_path / "runs.csv")
    assert table["ablated"].tolist() == ["nothing"]
    assert table["±"].isna().all()
