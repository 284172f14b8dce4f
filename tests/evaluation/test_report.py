"""The report, looked at in a real browser: as wide as a phone, and without a network."""

import html
import json
import shutil
import subprocess

import pytest

from retrax.evaluation.report import write_report
from retrax.evaluation.suites import find_suite

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --virtual-time-budget=5000"
)
PHONE = 360
# In the page, before everything else: what could not be loaded, and errors of scripts.
WATCH = """<script>
var problems = [];
addEventListener("error", e => problems.push(e.message || "not loaded: " + e.target.src), true);
</script>"""
MEASURE = """
onload = () => {
  const page = document.querySelector("iframe").contentWindow, all = page.document;
  const found = {
    problems: page.problems,
    requests: page.performance.getEntriesByType("resource").map(entry => entry.name),
    width: all.documentElement.scrollWidth,
    pictures: [...all.images].map(x => [x.naturalWidth, x.naturalHeight, x.clientWidth]),
    text: Math.min(...[...all.querySelectorAll("p, td, th")].map(
      x => parseFloat(page.getComputedStyle(x).fontSize))),
    title: all.title,
  };
  document.body.textContent = JSON.stringify(found);
};
"""


def report(directory, scores, curves, **about):
    """The page of a benchmark with these rows of its tables."""
    names = "agent preset task seed steps updates seconds episodes score low high normalised"
    tables = {"scores.csv": [",".join(names.split()), *scores]}
    tables["curves.csv"] = ["agent,task,seed,steps,episode_return", *curves]
    for name, lines in tables.items():
        (directory / name).write_text("\n".join(lines) + "\n")
    (directory / "suite.json").write_text(json.dumps({"suite": "control", **about}))
    return write_report(directory).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The report of two agents with two seeds on three tasks, and of one with a part of that."""
    scores, curves = [], []
    agents = {"acer": (0, 1), "d4pg": (0, 1), "my_long_module_name:MY_LONG_AGENT_NAME": (0,)}
    for agent, seeds in agents.items():
        for task in find_suite("control").tasks[: len(seeds) + 1]:
            for seed in seeds:
                scores.append(f"{agent},small,{task.name},{seed},99,9,9,2,{90 + seed},1,99,0.09")
                for steps in (40, 80):
                    curves.append(f"{agent},{task.name},{seed},{steps},{steps + seed}")
    directory = tmp_path_factory.mktemp("benchmark")
    return report(directory, scores, curves, command="retrax benchmark " + "x" * 200)


def test_a_run_whose_episodes_never_ended_has_a_report(tmp_path):
    """Its curve is empty, which Matplotlib warns about where a legend is asked for."""
    task = find_suite("control").tasks[0].name
    assert task in report(tmp_path, [f"acer,small,{task},0,99,9,9,2,9,1,99,0.09"], [])


def look(text, tmp_path):
    """What a browser finds in a page, in a frame as wide as a phone."""
    if BROWSER is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)}")
    text = html.escape(text.replace("<head>", f"<head>{WATCH}"))
    frame = f'<iframe style="width: {PHONE}px; height: 640px; border: 0" srcdoc="{text}"></iframe>'
    file = tmp_path / "frame.html"
    file.write_text(f"<!doctype html><body>{frame}<script>{MEASURE}</script></body>", "utf-8")
    result = subprocess.run(
        [BROWSER, *FLAGS.split(), f"--user-data-dir={tmp_path}", "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = result.stdout.partition("<body>")[2].partition("</body>")[0]
    return json.loads(html.unescape(found))


def test_a_browser_shows_the_report(page, tmp_path):
    found = look(page, tmp_path)
    assert found["title"].startswith("control: acer, d4pg, my_long")
    assert (found["problems"], found["requests"]) == ([], [])
    assert len(found["pictures"]) == 2  # curves and profiles
    for width, height, shown in found["pictures"]:
        assert width > 300
        assert height > 200
        assert 250 < shown <= PHONE
    assert found["width"] <= PHONE
    assert found["text"] >= 14


def test_a_browser_finds_what_is_wrong(page, tmp_path):
    wrong = (
        '<img src="http://127.0.0.1:9/a.png"><script>there_is_no_such_thing()</script>'
        '<div style="width: 900px">wide</div><p style="font-size: 5px">small</p></body>'
    )
    found = look(page.replace("</body>", wrong), tmp_path)
    assert any("there_is_no_such_thing" in problem for problem in found["problems"])
    assert "not loaded: http://127.0.0.1:9/a.png" in found["problems"]
    assert found["pictures"][-1][:2] == [0, 0]
    assert found["width"] >= 900
    assert found["text"] == 5
