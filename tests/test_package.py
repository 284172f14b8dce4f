"""What is shipped: the wheel has every module and nothing else, and the pins are consistent."""

import re
import shutil
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from fresh_python import run_python
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from source_files import PROJECT, TRACKED

import retrax

ROOT = Path(retrax.__file__).parent
NOT_SHIPPED = ("tests", "benchmarks", "docs", "examples")
EXTRAS = PROJECT["project"]["optional-dependencies"]
# What the pins are for.
TARGET = {"python_version": "3.10", "python_full_version": "3.10.0", "sys_platform": "linux"}
NEWER = {**TARGET, "python_version": "3.12", "python_full_version": "3.12.0"}
APART = {"docs", "brax", "craftax", "envpool", "gymnax", "jumanji", "xminigrid"}  # in no tested set
TESTED_SETS = {"requirements.txt": TARGET, "requirements-3.12.txt": NEWER}


def shipped_modules() -> set[str]:
    return {
        path.as_posix()
        for path in TRACKED
        if path.suffix == ".py"
        and path.parts[0] not in NOT_SHIPPED
        and not path.parts[0].startswith(".")
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A source distribution, and a wheel made from it: what an earlier build left helps neither."""
    if not TRACKED:
        pytest.skip("needs git, which lists the files")
    copy = tmp_path_factory.mktemp("copy")
    for path in TRACKED:
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, copy / path)
    run_python("-m", "build", "--no-isolation", "--outdir", "dist", ".", cwd=copy)
    return copy / "dist"


@pytest.fixture
def wheel(built):
    [path] = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_the_wheel_has_every_module_as_it_is_and_nothing_else(wheel):
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    data = {path.as_posix() for path in TRACKED if path.match("evaluation/data/*.csv")}
    assert data, "the published scores"
    assert names == {f"retrax/{name}" for name in shipped_modules() | data | {"py.typed"}}
    for name in names:
        assert wheel.read(name) == (ROOT.parent / name).read_bytes()


def test_the_wheel_says_its_version_and_its_command(wheel):
    [metadata] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    fields = Parser().parsestr(wheel.read(metadata).decode())
    said = (fields["Name"], fields["Version"], fields["License-Expression"])
    assert said == ("retrax", retrax.__version__, "Apache-2.0")
    [licence] = [name for name in wheel.namelist() if name.endswith("LICENSE")]
    assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert re.fullmatch(r"\d+\.\d+\.\d+", retrax.__version__)
    commands = wheel.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    assert "retrax = retrax.command.main:main" in commands
    assert "reactor = retrax.agents.reactor:AGENT" in commands


def test_the_source_distribution_has_the_whole_repository(built):
    """Tests, documents and licence, each as it is."""
    [path] = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        licence = archive.extractfile(f"retrax-{retrax.__version__}/LICENSE").read()
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert {path.as_posix() for path in TRACKED} - names <= {".gitignore", ".gitattributes"}
    assert {"CHANGELOG.md", "CITATION.cff", "mkdocs.yml", ".pre-commit-config.yaml"} <= names


def test_the_citation_names_this_version_and_every_agent():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^([a-z-]+): (.+)$", text, re.MULTILINE))
    assert fields["version"] == retrax.__version__
    assert fields["license"] == PROJECT["project"]["license"]
    for word in ("Reactor", "Actor-Critic with Experience", "Deterministic Policy", "Agent57"):
        assert re.search(rf"^    title: .*{word}", text, re.MULTILINE), word


def pins(file: str) -> dict[str, str]:
    """Versions by name; each requirement must be pinned once, and the package be the last line."""
    *lines, last = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if line and not line.startswith("#")]
    for line in pinned:
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]*==[0-9][a-z0-9.+]*", line), line
    versions = dict(line.split("==") for line in pinned)
    assert len(versions) == len(pinned)
    assert last == "-e ."
    return versions


def unpinned(requirements: list[str], versions: dict[str, str], env: dict[str, str]) -> list[str]:
    """Requirements that hold in `env` and that no pin satisfies."""
    found = []
    for text in requirements:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name == "retrax" or (requirement.marker and not requirement.marker.evaluate(env)):
            continue
        if name not in versions or versions[name] not in requirement.specifier:
            found.append(text)
    return found


@pytest.mark.parametrize(("file", "target"), TESTED_SETS.items())
def test_the_pins_satisfy_every_range(file, target):
    wanted = [
        *PROJECT["build-system"]["requires"],
        *PROJECT["project"]["dependencies"],
        *(text for name, extra in EXTRAS.items() if name not in APART for text in extra),
    ]
    assert unpinned(wanted, pins(file), target) == []


def test_the_core_needs_nothing_of_the_distributed_tier():
    core = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    pinned = [Requirement(text) for text in EXTRAS["distributed"] if "==" in text.split(";")[0]]
    heavy = {requirement.name for requirement in pinned}
    assert {"dm-acme", "dm-launchpad", "dm-reverb", "tensorflow-cpu"} <= heavy
    assert core & (heavy | {"tensorflow"}) == set()


def test_the_distributed_tier_is_asked_for_only_where_it_exists():
    elsewhere = [NEWER, {**TARGET, "sys_platform": "darwin"}]
    for text in EXTRAS["distributed"]:
        marker = Requirement(text).marker
        assert marker is not None, text
        assert marker.evaluate(TARGET), text
        assert not any(marker.evaluate(env) for env in elsewhere), text


@pytest.mark.parametrize(
    "python", re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
)
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_one_range_of_ray_holds_on_every_python(python, system):
    environment = {"python_version": python, "sys_platform": system}
    found = [Requirement(text) for text in EXTRAS["cluster"]]
    [ray] = [r for r in found if r.marker is None or r.marker.evaluate(environment)]
    beside_reverb = (python, system) == ("3.10", "linux")  # protobuf 3.19
    assert ("2.60.0" in ray.specifier) == (not beside_reverb)
    assert "2.48.0" in ray.specifier
    assert "2.47.1" not in ray.specifier
