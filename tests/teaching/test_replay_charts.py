"""The charts of notebook 01 show the data that they are given."""

from labkit.teaching import replay_charts


def test_the_balance_counts_each_request_at_its_answer():
    events = [("sample", 2.0, 3.0), ("insert", 0.0, 2.0), ("insert", 0.0, 1.0)]
    assert replay_charts.balance(events, 3.0).tolist() == [[0, 0], [1, 3], [2, 6], [3, 5]]


def test_charts_show_their_data():
    figure = replay_charts.frequencies(["a", "b"], [40, 60], {"formula": [50, 50]})
    assert [bar.get_height() for bar in figure.axes[0].patches] == [40, 60]
    figure = replay_charts.costs(["x", "y"], {"first": [1, 2], "second": [3, 4]})
    assert [bar.get_width() for bar in figure.axes[1].patches] == [3, 4]
    events = [("insert", 0.0, 0.5), ("sample", 0.5, 0.6)]
    figure = replay_charts.limiter(events, 1.0, (0, 3), blocked_seconds=0.2)
    blocked = [len(bars.get_paths()) for bars in figure.axes[1].collections]
    assert blocked == [1, 0]
