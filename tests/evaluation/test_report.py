"""The report of agents that have not all seeds, with long names; a page as wide as a phone."""

import json
import re

from html_page import Page

from retrax.evaluation.report import write_report
from retrax.evaluation.suites import find_suite


def report(directory, scores, curves, **about):
    """The page of a benchmark with these rows of its tables."""
    names = "agent preset task seed steps updates seconds episodes score low high normalised"
    tables = {"scores.csv": [",".join(names.split()), *scores]}
    tables["curves.csv"] = ["agent,task,seed,steps,episode_return", *curves]
    for name, lines in tables.items():
        (directory / name).write_text("\n".join(lines) + "\n")
    (directory / "suite.json").write_text(json.dumps({"suite": "control", **about}))
    return write_report(directory).read_text(encoding="utf-8")


def test_a_page_holds_all_that_it_shows_and_fits_a_phone(tmp_path):
    """Of two agents with two seeds on three tasks, and of one with a part of that.

    Wide tables scroll, pictures shrink and long words break.
    """
    scores, curves = [], []
    agents = {"acer": (0, 1), "d4pg": (0, 1), "my_long_module_name:MY_LONG_AGENT_NAME": (0,)}
    for agent, seeds in agents.items():
        for task in find_suite("control").tasks[: len(seeds) + 1]:
            for seed in seeds:
                scores.append(f"{agent},small,{task.name},{seed},99,9,9,2,{90 + seed},1,99,0.09")
                for steps in (40, 80):
                    curves.append(f"{agent},{task.name},{seed},{steps},{steps + seed}")
    text = report(tmp_path, scores, curves, command="retrax benchmark " + "x" * 200)
    page, rules = Page(text), dict(re.findall(r"^(.*) { (.*) }$", text, re.MULTILINE))
    assert "<title>control: acer, d4pg, my_long" in text
    assert [source.partition(",")[0] for source in page.sources] == ["data:image/png;base64"] * 2
    assert page.open == []
    assert "my_long_module_name:MY_LONG_AGENT_NAME does not have all seeds on all tasks." in text
    assert "overflow-x: auto" in rules["table"]
    assert rules["img"] == "max-width: 100%;"
    assert rules["h1, p"] == "overflow-wrap: anywhere;"


def test_a_run_whose_episodes_never_ended_has_a_report(tmp_path):
    """Its curve is empty, which Matplotlib warns about where a legend is asked for."""
    task = find_suite("control").tasks[0].name
    assert task in report(tmp_path, [f"acer,small,{task},0,99,9,9,2,9,1,99,0.09"], [])
