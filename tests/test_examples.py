"""Packages in examples/ are what somebody else would write: retrax does not know them.

Commands with them are run in `documents/test_examples.py`.
"""

from pathlib import Path

import retrax

ROOT = Path(retrax.__file__).parent
EXAMPLES = ROOT / "examples"
MAX_LINES = 300


def test_rainbow_is_short():
    sources = [path for path in (EXAMPLES / "rainbow").glob("*.py") if "test" not in path.name]
    assert len(sources) > 1
    assert sum(len(path.read_text().splitlines()) for path in sources) <= MAX_LINES


def test_nothing_in_the_package_knows_rainbow():
    others = ("tests", "examples", "docs", "build")
    folders = [path for path in ROOT.iterdir() if path.name not in others and path.name[0] != "."]
    sources = [path for folder in folders for path in [folder, *folder.rglob("*.py")]]
    sources = [path for path in sources if path.suffix == ".py"]
    assert len(sources) > 50
    assert not [path for path in sources if "import rainbow" in path.read_text(encoding="utf-8")]


def test_examples_import_retrax_as_others_do():
    texts = [path.read_text(encoding="utf-8") for path in EXAMPLES.rglob("*.py")]
    assert any("from retrax" in text for text in texts)
    assert not [text for text in texts if "from .." in text or "retrax._" in text]
