"""The files of this repository: those that git tracks; in a source distribution, all there are.

And what pyproject.toml says.
"""

import shutil
import subprocess
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
_GIT = ["git", "ls-files", "-z"] if shutil.which("git") else ["true"]
_LISTED = subprocess.run(_GIT, cwd=ROOT, capture_output=True, text=True).stdout.split("\0")
TRACKED = [Path(name) for name in _LISTED if name and (ROOT / name).is_file()]
FILES = TRACKED or [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file()]
MODULES = [path for path in FILES if path.suffix == ".py"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
