"""The documentation site: built strictly, complete, without a broken link, readable offline."""

import fcntl
import functools
import http.server
import importlib
import posixpath
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import browser
import pytest
from benchmark_modules import load

REASON = "needs the tools of the documentation site: pip install -e '.[docs]'"
for module in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
    pytest.importorskip(module, reason=REASON)

ROOT = Path(__file__).parents[1]
# Tags that make a browser load a file; an <a> is not one of them.
LOADING = {"script": "src", "img": "src", "source": "src", "iframe": "src", "link": "href"}


site_pages, docstring_equations = (
    load(name, ROOT / "docs") for name in ("site_pages", "docstring_equations")
)


class Page(HTMLParser):
    """What a page refers to, what it loads, and the anchors that it has."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors |= {attributes[key] for key in ("id", "name") if attributes.get(key)}
        if tag in LOADING and attributes.get(LOADING[tag]):
            self.loaded.add(attributes[LOADING[tag]])
        if tag == "a" and attributes.get("href"):
            self.links.add(attributes["href"])


def build(folder):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    return subprocess.run(
        [*command, "--config-file", str(ROOT / "mkdocs.yml")],
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )


@pytest.fixture(scope="session")
def site(tmp_path_factory, worker_id):
    """The built site; the processes of one test run share it."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "site" / "sitemap.xml").exists():
            done = build(shared / "site")
            assert done.returncode == 0, done.stdout + done.stderr
    return shared / "site"


@functools.cache
def parsed(path):
    return Page(path.read_text(encoding="utf-8"))


def all_pages(site):
    found = {path: parsed(path) for path in sorted(site.rglob("*.html"))}
    assert len(found) > 100
    return found


def broken(site, path, page):
    """Links of a page that lead to no file, or to an anchor that its file does not have."""
    for link in sorted(page.links | page.loaded):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        folder = site if parts.path.startswith("/") else path.parent
        target = folder / unquote(parts.path).lstrip("/") if parts.path else path
        target = target / "index.html" if target.is_dir() else target
        missing = not target.exists()
        if missing or (parts.fragment and unquote(parts.fragment) not in parsed(target).anchors):
            yield f"{path.relative_to(site)}: {link}"


def test_every_document_is_a_page(site):
    for page in site_pages.pages():
        name = posixpath.splitext(page)[0]
        name = posixpath.dirname(name) if name.endswith("README") else name
        assert (site / name / "index.html").exists(), page


def test_every_link_leads_to_a_file_and_an_anchor(site):
    found = [link for path, page in all_pages(site).items() for link in broken(site, path, page)]
    assert found == []


def test_a_browser_loads_nothing_from_another_host(site):
    loaded = {name for page in all_pages(site).values() for name in page.loaded}
    assert len(loaded) > 5
    assert [name for name in loaded if "//" in name] == []
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", sheet.read_text()), sheet


@pytest.mark.parametrize("package", ["losses", "networks", "replay", "agents", "environments"])
def test_every_public_name_has_an_anchor(site, package):
    names = importlib.import_module(f"retrax.{package}").__all__
    anchors = parsed(site / "reference" / package / "index.html").anchors
    assert {f"retrax.{package}.{name}" for name in names} <= anchors


def test_every_equation_is_drawn(site):
    """No command of LaTeX is left over: an unknown one would be shown as text."""
    text = (site / "docs" / "algorithms" / "index.html").read_text(encoding="utf-8")
    equations = re.findall(r"<math.*?</math>", text, re.DOTALL)
    assert len(equations) > 40
    assert [equation for equation in equations if "\\" in equation] == []
    assert "arithmatex" not in text


def test_equations_of_docstrings_are_code(site):
    page = site / "reference" / "losses" / "off_policy" / "index.html"
    text = re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))
    assert "q*_i(x_t, a_t) = sum_{n&gt;=1} sum_a alpha_{n,a} sum_j q_j(x_{t+n}, a)" in text


# Tables and equations that a reader cannot see whole: wider than the column and without a visible
# scroll bar, cut off above or below, or with code that is broken inside of a word.
UNSEEN = """(() => {
  const found = [], column = document.querySelector("article");
  for (const element of column.querySelectorAll("table, math")) {
    let box = element.parentElement;
    while (box != column && !/auto|scroll/.test(getComputedStyle(box).overflowX))
      box = box.parentElement;
    const isWider = box == column ? element.scrollWidth > column.clientWidth
                                  : box.scrollWidth > box.clientWidth;
    const hasBar = box != column && box.offsetHeight > box.clientHeight;
    const isCut = box != column && box.scrollHeight > box.clientHeight;
    if (isWider && !hasBar || isCut) found.push(element.textContent.slice(0, 80));
  }
  for (const code of column.querySelectorAll("td code"))
    if (getComputedStyle(code).wordBreak != "normal") found.push(code.textContent);
  return found;
})()"""


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    """A browser."""
    path = browser.find()
    if path is None:
        pytest.skip(f"needs a browser, one of: {', '.join(browser.NAMES)}")
    with browser.Browser(path, tmp_path_factory.mktemp("profile")) as window:
        yield window


@pytest.fixture(scope="module")
def address(site):
    """The address at which a server of this machine offers the site."""
    files = functools.partial(QuietFiles, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class QuietFiles(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Says nothing."""


def test_tables_and_equations_are_seen_whole_or_have_a_scroll_bar(site, address, window):
    seen = 0
    for path in all_pages(site):
        text, folder = path.read_text(encoding="utf-8"), path.parent.relative_to(site).as_posix()
        if folder.startswith(("reference", "source")) or not re.search("<table|<math", text):
            continue
        window.resize(1400)
        window.go(address + ("" if folder == "." else f"{folder}/"))
        for width in (1400, 390):
            window.resize(width)
            assert window.run(UNSEEN) == [], f"{folder} at {width} pixels"
        seen += 1
    assert seen > 30


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ("<table><td style='min-width: 500px'>wide</table>", ["wide"]),
        ("<div style='overflow: auto'><table><td style='min-width: 500px'>x</table></div>", []),
        ("<div style='overflow: auto hidden; height: 9px'><math><mi>y</mi></math></div>", ["y"]),
        ("<table><td><code style='word-break: break-word'>x_y</code></table>", ["x_y"]),
    ],
)
def test_what_a_reader_cannot_see_is_found(column, found, window):
    window.resize(390)
    window.go("about:blank")
    window.run(f"document.body.innerHTML = {f'<article>{column}</article>'!r}")
    assert window.run(UNSEEN) == found


@pytest.mark.parametrize(
    ("query", "pages"),
    [
        ("hyperparameter", ["docs/how_to/search"]),
        ("notebook", ["docs/how_to/search"]),
        ("Optuna", ["docs/how_to/search"]),
        ("seeds", ["docs/how_to/search"]),
        ("W&B", ["docs/how_to/trackers"]),
        ("Weights & Biases", ["docs/how_to/trackers"]),
        ("MLflow", ["docs/how_to/trackers"]),
        ("cuda12", ["docs/how_to/gpu"]),
        ("CUDA 13", ["docs/how_to/gpu"]),
        ("offline", ["docs/how_to/logged_data"]),
        ("EnvPool", ["docs/how_to/environment"]),
        ("docker", ["docs/guide"]),
        ("environment", ["docs/how_to/environment"]),
        ("network", ["docs/how_to/network"]),
        ("GPU", ["docs/how_to/gpu"]),
        ("resume", ["docs/how_to/resume"]),
        ("published score", ["docs/results"]),
        ("retrace_coefficients", ["docs/algorithms", "reference/losses/off_policy"]),
    ],
)
def test_the_search_finds_first(query, pages, address, window):
    window.resize(1400)
    window.go(f"{address}?q={quote(query)}")
    results = "document.querySelector('.md-search-result__item a')"
    first = urlsplit(window.wait(f"{results} && {results}.href")).path.strip("/")
    assert first in pages


def test_broken_links_are_found(tmp_path):
    here, there = tmp_path / "index.html", tmp_path / "there" / "index.html"
    there.parent.mkdir()
    there.write_text("<h2 id='part'>Part</h2>")
    links = ["there/", "there/#part", "there/#none", "gone/", "#own", "https://example.org/x"]
    here.write_text("<p id='own'>" + "".join(f"<a href='{link}'>x</a>" for link in links))
    page = parsed(here)
    assert list(broken(tmp_path, here, page)) == ["index.html: gone/", "index.html: there/#none"]


def test_links_of_a_page_are_rewritten_and_code_is_not():
    text, linked = site_pages.with_links("agents/acer/README.md")
    assert "](../../reference/losses/acer_returns.md)" in text
    assert linked == {}
    text, linked = site_pages.with_links("README.md")
    assert "(docs/results/control/curves.png)" in text
    assert set(linked) >= {"docs/results/control/curves.png", "source/tests/oracles.py.md"}
    assert "```bash distributed" not in text


def test_private_modules_and_tests_have_no_reference():
    names = site_pages.modules()
    assert {"retrax", "retrax.losses", "retrax.losses.off_policy"} <= set(names)
    assert not [name for name in names if "._" in name or ".tests" in name]


def test_equations_become_mathml():
    page = '<p><span class="arithmatex">\\(q &lt; 1\\)</span></p>'
    html = site_pages.on_page_content(page)
    assert "<math" in html
    assert "<mo>&lt;</mo>" in html.replace("&#x0003C;", "&lt;")
    assert "arithmatex" not in html


@pytest.mark.parametrize(
    ("docstring", "shown"),
    [
        (
            "One.\n\nTwo:\n  x = 1\n  y = 2\nThree.",
            "One.\n\nTwo:\n\n```text\n  x = 1\n  y = 2\n```\nThree.",
        ),
        ("One.\n\n  x = 1", "One.\n\n\n```text\n  x = 1\n```"),
        ("One.\n\n* a\n  b\n* c", "One.\n\n* a\n  b\n* c"),
        ("One.\n\nArgs:\n  x: y.", "One.\n\nArgs:\n  x: y."),
    ],
)
def test_indented_lines_of_docstrings_are_fenced(docstring, shown):
    assert docstring_equations.with_equations(docstring).strip() == shown
