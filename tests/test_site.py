"""The documentation site: built strictly, which finds broken links; complete, readable offline."""

import fcntl
import importlib
import posixpath
import re
from pathlib import Path

import pytest
from benchmark_modules import load
from fresh_python import run_python

REASON = "needs the tools of the documentation site: pip install -e '.[docs]'"
for module in ("mkdocs", "material", "mkdocstrings", "latex2mathml", "ziamath"):
    pytest.importorskip(module, reason=REASON)

ROOT = Path(__file__).parents[1]
# Tags that make a browser load a file; an <a> is not one of them.
LOADED = re.compile(r'<(?:script|img|source|iframe|link)\b[^>]* (?:src|href)="?([^"\s>]+)')

site_pages = load("site_pages", ROOT / "docs")


@pytest.fixture(scope="session")
def site(tmp_path_factory, worker_id):
    """The built site; the processes of one test run share it."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    config = ["--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(shared / "site")]
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "site" / "sitemap.xml").exists():
            run_python("-m", "mkdocs", "build", "--strict", *config)
    return shared / "site"


def text_of(site, page):
    return (site / page / "index.html").read_text(encoding="utf-8")


def test_every_document_is_a_page(site):
    for page in site_pages.pages():
        name = posixpath.splitext(page)[0]
        name = posixpath.dirname(name) if name.endswith("README") else name
        assert (site / name / "index.html").exists(), page


def test_a_browser_loads_nothing_from_another_host(site):
    pages = [path.read_text(encoding="utf-8") for path in site.rglob("*.html")]
    loaded = {name for page in pages for name in LOADED.findall(page)}
    assert len(pages) > 100
    assert len(loaded) > 5
    assert [name for name in loaded if "//" in name] == []
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", sheet.read_text()), sheet


@pytest.mark.parametrize("package", ["losses", "networks", "replay", "agents", "environments"])
def test_every_public_name_has_an_anchor(site, package):
    anchors = set(re.findall(r' id="?([\w.]+)', text_of(site, f"reference/{package}")))
    names = importlib.import_module(f"retrax.{package}").__all__
    assert {f"retrax.{package}.{name}" for name in names} <= anchors


def test_every_equation_is_drawn_and_those_of_docstrings_are_code(site):
    """No command of LaTeX is left over: an unknown one would be shown as text."""
    text = text_of(site, "docs/algorithms")
    equations = re.findall(r"<math.*?</math>", text, re.DOTALL)
    assert len(equations) > 40
    assert [equation for equation in equations if "\\" in equation] == []
    assert "arithmatex" not in text
    text = re.sub(r"<[^>]+>", "", text_of(site, "reference/losses/off_policy"))
    assert "q*_i(x_t, a_t) = sum_{n&gt;=1} sum_a alpha_{n,a} sum_j q_j(x_{t+n}, a)" in text


def test_links_of_a_page_are_rewritten_and_code_is_not():
    text, linked = site_pages.with_links("agents/acer/README.md")
    assert "](../../reference/losses/acer.md)" in text
    assert set(linked) == {"docs/results/evaluations/acer.png"}
    text, linked = site_pages.with_links("README.md")
    assert "(docs/results/evaluations/curves.png)" in text
    assert set(linked) >= {"docs/results/evaluations/curves.png", "source/tests/oracles.py.md"}
    assert "```bash distributed" not in text
