"""Learning curves of made-up run directories."""

import json

import numpy as np
import pytest
from fresh_python import run_python
from matplotlib import image

from retrax.evaluation.plots import plot_learning_curves, read_metrics


def make_run(directory, metrics, *, agent="reactor", environment="Catch", seed=0, **config):
    directory.mkdir(parents=True)
    config = {"agent": agent, "environment": environment, "seed": seed, **config}
    config["id"] = str(directory)  # which is another one in each run
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "metrics.csv").write_text(metrics)
    return directory


def make_metrics(steps, values, *, metric="episode_return"):
    rows = zip(steps, values, strict=True)
    return f"steps,{metric}\n" + "".join(f"{step},{value}\n" for step, value in rows)


HEADER = "steps,episode_return\n"
SHORT = make_metrics([0, 100], [1.0, 2.0])


def panels_of(figure):
    return {axes.get_title(): axes for axes in figure.axes if axes.get_title()}


def curves_of(axes):
    """From (colour, whether it is bold) to the curves drawn so, as lists of points."""
    curves = {}
    for line in axes.get_lines():
        points = [tuple(point) for point in line.get_xydata().tolist()]
        curves.setdefault((line.get_color(), line.get_linewidth() > 1.5), []).append(points)
    return curves


def labels_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_reads_what_a_spreadsheet_wrote(tmp_path):
    run = make_run(tmp_path / "run", SHORT)
    expected = read_metrics(run)
    path = run / "metrics.csv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    np.testing.assert_equal(read_metrics(str(run)), expected)
    assert list(expected) == ["steps", "episode_return"]
    path.write_text(SHORT.replace(",", ";"))
    with pytest.raises(ValueError, match=r"metrics.csv has semicolons between its columns: it mus"):
        read_metrics(run)


def test_evaluations_are_drawn_beside_returns_of_training(tmp_path):
    """The mean over seeds at the steps of evaluations; another metric stands alone."""
    metrics = "steps,episode_return,evaluation_return\n0,1,\n10,2,{}\n20,,5\n30,3,\n"
    runs = [make_run(tmp_path / f"{x}", metrics.format(x), seed=x) for x in (3, 7)]
    (panel,) = plot_learning_curves(runs).axes
    (dots,) = [line for line in panel.get_lines() if line.get_marker() == "o"]
    assert dots.get_xydata().tolist() == [[10.0, 5.0], [20.0, 5.0]]
    assert labels_of(panel) == ["reactor (2 seeds)", "reactor (2 seeds), greedy"]
    (panel,) = plot_learning_curves(runs, metric="evaluation_return").axes
    assert labels_of(panel) == ["reactor (2 seeds)"]


def test_reads_a_run_that_is_still_going_on(tmp_path):
    """The last line may be half written, even where it looks like a row."""
    columns = read_metrics(make_run(tmp_path / "run", HEADER + "0,1.5\n10,\n20,2"))
    expected = {"steps": [0.0, 10.0], "episode_return": [1.5, np.nan]}
    np.testing.assert_equal({name: list(values) for name, values in columns.items()}, expected)


def test_draws_a_picture(tmp_path):
    """The same that a notebook shows; paths may be text."""
    run = make_run(tmp_path / "run", SHORT)
    output = tmp_path / "new" / "curves.png"
    assert plot_learning_curves([str(run)], str(output))._repr_png_() == output.read_bytes()
    picture = image.imread(output)
    assert picture.shape[0] > 300
    assert picture.shape[1] > 400
    assert len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 10  # not blank


def test_seeds_share_a_colour_and_a_bold_mean(tmp_path):
    """A directory of seeds stands for those that have begun."""
    runs = [
        make_run(tmp_path / "seed_2", make_metrics([0, 100, 200], [1.0, 3.0, 9.0]), seed=2),
        make_run(tmp_path / "seed_10", make_metrics([0, 100], [3.0, 5.0]), seed=10),
    ]
    (make_run(tmp_path / "seed_11", SHORT, seed=11) / "metrics.csv").unlink()
    for given in (runs, [tmp_path], [tmp_path, runs[0], *runs]):
        (axes,) = plot_learning_curves(given).axes
        assert curves_of(axes) == {
            ("C0", False): [[(0, 1), (100, 3), (200, 9)], [(0, 3), (100, 5)]],
            ("C0", True): [[(0, 2), (100, 4)]],
        }
        assert labels_of(axes) == ["reactor (2 seeds)"]
        assert axes.get_title() == "Catch"
        assert axes.get_xlabel() == "environment steps"
        assert axes.get_ylabel() == "episode return"


RATES = [{"seed": seed, "config": {"rate": seed / 10, "size": 4}} for seed in (1, 2)]
ONE_CHANGE = [{"n": 5, "kind": "sum"}, {"n": 1, "kind": "sum"}, {"n": 5, "kind": "max"}]


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ([{"agent": "acer"}, *RATES], ["acer", "reactor, rate=0.1", "reactor, rate=0.2"]),
        (  # what most settings share is left out
            [{"config": config} for config in ONE_CHANGE],
            ["reactor", "reactor, kind=max", "reactor, n=1"],
        ),
        (  # presets stand for their fields, and those of other panels do not matter
            [
                {"environment": "Maze", "preset": "small", "config": {"n": 1, "size": 4}},
                {"environment": "Maze", "preset": "paper", "config": {"n": 5, "size": 64}},
                {"environment": "Maze", "preset": "paper", "config": {"n": 5, "size": 32}},
                {"environment": "Pong", "preset": "tiny", "config": {"n": 7, "size": 2}},
            ],
            ["reactor", "reactor, size=32", "reactor, size=64", "reactor, small"],
        ),
    ],
)
def test_labels_of_settings_that_differ_in_more_than_the_seed(tmp_path, settings, labels):
    runs = [make_run(tmp_path / str(i), SHORT, **setting) for i, setting in enumerate(settings)]
    panels = panels_of(plot_learning_curves(runs))
    assert sorted(label for axes in panels.values() for label in labels_of(axes)) == labels
    drawn = {colour for axes in panels.values() for colour in curves_of(axes)}
    assert drawn == {(f"C{number}", True) for number in range(len(settings))}
    assert "Pong" not in panels or labels_of(panels["Pong"]) == ["reactor"]


def test_a_panel_for_each_environment_with_the_same_colours(tmp_path):
    names = ["Catch", "Deep", "Chain", "Pong", "Maze"]
    runs = [make_run(tmp_path / f"r{name}", SHORT, environment=name) for name in names]
    runs.append(make_run(tmp_path / "acer", SHORT, environment="Maze", agent="acer"))
    figure = plot_learning_curves(runs)
    panels = panels_of(figure)
    assert list(panels) == sorted(names)
    assert all(("C1", True) in curves_of(axes) for axes in panels.values())  # reactor
    assert labels_of(panels["Pong"]) == ["reactor"]
    assert labels_of(panels["Maze"]) == ["acer", "reactor"]


def test_another_metric_and_gaps_in_it(tmp_path):
    metrics = "steps,episode_return,loss\n0,1.0,\n10,,4.0\n20,,\n30,2.0,8.0\n"
    (axes,) = plot_learning_curves([make_run(tmp_path / "run", metrics)], metric="loss").axes
    assert curves_of(axes) == {("C0", True): [[(10, 4), (30, 8)]]}
    assert axes.get_ylabel() == "loss"


def test_window_smooths(tmp_path):
    run = make_run(tmp_path / "run", make_metrics([0, 1, 2], [2.0, 4.0, 8.0]))
    figure = plot_learning_curves([run], window=2)
    assert curves_of(figure.axes[0]) == {("C0", True): [[(0, 2), (1, 3), (2, 6)]]}
    assert figure.axes[0].get_ylabel() == "episode return (mean of 2 rows)"


@pytest.mark.parametrize("seeds", [2, 3])
def test_three_seeds_have_a_band(tmp_path, seeds):
    """By hand: 1, 2, 3 have deviation 1 and mean 2, so 2 +- 4.3027 / sqrt(3)."""
    runs = [
        make_run(tmp_path / str(seed), make_metrics([0, 10], [seed, 2.0]), seed=seed)
        for seed in range(1, seeds + 1)
    ]
    copy = make_run(tmp_path / "copy", make_metrics([0, 10], [1, 2.0]), seed=1)
    (axes,) = plot_learning_curves([*runs, copy]).axes
    assert (labels_of(axes), len(axes.collections)) == ([f"reactor ({seeds} seeds)"], 0)
    (axes,) = plot_learning_curves(runs).axes
    assert labels_of(axes) == [f"reactor ({seeds} seeds{', 95 %' if seeds > 2 else ''})"]
    assert len(axes.collections) == (seeds > 2)
    for band in axes.collections:
        corners = band.get_paths()[0].vertices
        start = corners[corners[:, 0] == 0][:, 1]
        half = 4.302653 / np.sqrt(3)
        np.testing.assert_allclose([start.min(), start.max()], [2 - half, 2 + half], rtol=1e-5)
        np.testing.assert_allclose(corners[corners[:, 0] == 10][:, 1], 2.0)


CONFIG = "is not a run directory: it has no config.json with agent, environment and seed"
DAMAGED = "is damaged: its rows are not 2 numbers"


@pytest.mark.parametrize(
    ("file", "text", "match", "options"),
    [
        ("config.json", None, CONFIG, {}),
        *(("config.json", text, CONFIG, {}) for text in ("{", "[]", '{"agent": "acer"}')),
        ("metrics.csv", None, r"run has no metrics\.csv", {}),
        *(
            ("metrics.csv", text, "is empty: nothing has been measured", {})
            for text in ("", HEADER, HEADER + "0,1")
        ),
        *(("metrics.csv", f"{SHORT}{row}\n", DAMAGED, {}) for row in ("0,one", "0,1,2", "0", '"')),
        ("metrics.csv", HEADER + "0,\n10,\n", "has no value of 'episode_return' yet", {}),
        ("metrics.csv", SHORT, r"'los'; its metrics are \['episode_return'", {"metric": "los"}),
        ("metrics.csv", SHORT, "no run directories were given", {"runs": []}),
        ("metrics.csv", SHORT, r"a\.pdf must end in \.png", {"output": "a.pdf"}),
    ],
)
def test_rejects_what_cannot_be_drawn(tmp_path, file, text, match, options):
    run = make_run(tmp_path / "run", SHORT)
    (run / file).unlink() if text is None else (run / file).write_text(text)
    options = {"runs": [run], "output": "a.png", **options}
    output = tmp_path / "new" / options.pop("output")
    with pytest.raises(ValueError, match=match) as caught:
        plot_learning_curves(output=output, **options)
    assert "\n" not in str(caught.value)
    assert not output.parent.exists()


def test_leaves_pyplot_and_tensorflow_alone(tmp_path):
    """A library that touches pyplot may open windows, and keeps every figure in memory."""
    run = make_run(tmp_path / "run", SHORT)
    program = f"""
import pathlib, sys
from retrax import evaluation
from retrax.training.recorder import Counters, MetricsTable
assert "matplotlib" not in sys.modules, "importing retrax.evaluation should not cost a second"
evaluation.plot_learning_curves([pathlib.Path({str(run)!r})], pathlib.Path({str(run / "a.png")!r}))
assert "matplotlib.figure" in sys.modules and "matplotlib.pyplot" not in sys.modules
table = MetricsTable(pathlib.Path({str(tmp_path)!r}), ["loss"], resumed_at=None)
table.write(Counters(steps=1), {{"loss": 2.0}}, {{}})
assert "tensorflow" not in sys.modules
"""
    run_python("-W", "error", "-c", program)


@pytest.mark.parametrize(("agents", "beside"), [(4, False), (5, True)])
def test_the_legend_of_many_curves_stands_beside_them(tmp_path, agents, beside):
    runs = [make_run(tmp_path / f"{i}", SHORT, agent=f"agent{i}") for i in range(agents)]
    figure = plot_learning_curves(runs, tmp_path / "curves.png")
    (axes,) = figure.axes
    legend, panel = axes.get_legend().get_window_extent(), axes.get_window_extent()
    assert (legend.x0 >= panel.x1) == beside
    assert legend.x1 <= figure.bbox.x1
    assert panel.width > figure.bbox.width / 2
