"""Mutation tests: wrong lines, one at a time, and the tests that must fail on each.

Reads the lists in `benchmarks/mutations/*.json`. A mutation is an object

    {"name": ..., "file": ..., "old": ..., "new": ..., "tests": [...]}

`old` is text that occurs once in `file`, `new` replaces it, and `tests` are pytest node ids; all
paths are relative to the package. Each mutation is applied to a copy of the package, where its
tests are run. It is killed if a test fails, and survives if all pass. Before, all named tests are
run on an unmutated copy. The exit status is 0 if all mutations were killed.

With --results FILE each outcome is a row of FILE, and mutations with a row are not run again: the
same command goes on where it was stopped. A row holds for the commit that it was made at.
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[1]
LISTS = Path(__file__).resolve().parent / "mutations"
_NOT_COPIED = shutil.ignore_patterns(
    *(".git", ".*_cache", ".venv*", "__pycache__", "build", "runs", "*.egg-info")
)
# Exit statuses of pytest.
_PASSED, _FAILED = 0, 1


class Mutation(NamedTuple):
    """One wrong line.

    Attributes:
      name: unique over all lists.
      file: path of the mutated file.
      old: text that occurs once in the file.
      new: replaces it.
      tests: pytest node ids; at least one of them must fail on the mutation.
      group: the name of the list.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    group: str

    def applies(self, package: Path) -> bool:
        """Whether `old` occurs exactly once in the file."""
        path = package / self.file
        return path.is_file() and path.read_text().count(self.old) == 1

    def apply(self, package: Path) -> None:
        """Replaces `old` in the file of a package."""
        path = package / self.file
        path.write_text(path.read_text().replace(self.old, self.new))


def read_mutations(folder: Path) -> list[Mutation]:
    """The mutations of all lists in a folder.

    Raises:
      ValueError: a name occurs twice, or a mutation has no tests.
    """
    mutations = [
        Mutation(**{**entry, "tests": tuple(entry["tests"])}, group=path.stem)
        for path in sorted(folder.glob("*.json"))
        for entry in json.loads(path.read_text())
    ]
    names = [mutation.name for mutation in mutations]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"Names of mutations must be unique, twice: {', '.join(twice)}.")
    if untested := [mutation.name for mutation in mutations if not mutation.tests]:
        raise ValueError(f"Mutations without tests: {', '.join(untested)}.")
    return mutations


def select(mutations: Sequence[Mutation], names: Sequence[str]) -> list[Mutation]:
    """The mutations with one of the names, or of one of these groups; all if there are no names.

    Raises:
      ValueError: a name is neither a mutation nor a group.
    """
    known = {name for mutation in mutations for name in (mutation.name, mutation.group)}
    if unknown := sorted(set(names) - known):
        raise ValueError(f"No mutation or group named {', '.join(unknown)}.")
    wanted = set(names)
    return [m for m in mutations if not wanted or wanted & {m.name, m.group}]


@contextmanager
def copied_package() -> Iterator[Path]:
    """A temporary copy of the package, which has its name and whose parent can be imported from."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "retrax"
        shutil.copytree(PACKAGE, package, ignore=_NOT_COPIED)
        if (index := PACKAGE / ".git").is_dir():  # tests of what is shipped read it
            (package / ".git").write_text(f"gitdir: {index}\n")
        yield package


def run_tests(
    package: Path, tests: Sequence[str], jobs: int = 0
) -> subprocess.CompletedProcess[str]:
    """Runs tests of a copy against that copy, of any tier, until one fails.

    `jobs` processes run them, 0: this one.
    """
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    # All copies share compiled programs.
    cache = PACKAGE / ".pytest_cache" / "compiled"
    environment.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "", "-n", str(jobs), *tests]
    return subprocess.run(
        command, cwd=package, env=environment, capture_output=True, text=True, check=False
    )


def outcome(mutation: Mutation) -> str:
    """`killed`, `survived`, or why the mutation could not be tested."""
    with copied_package() as package:
        if not mutation.applies(package):
            return "does not apply"
        mutation.apply(package)
        status = run_tests(package, mutation.tests).returncode
    if status == _FAILED:
        return "killed"
    return "survived" if status == _PASSED else f"pytest exits with status {status}"


def check_unmutated(mutations: Sequence[Mutation], jobs: int = 0) -> None:
    """Runs the tests of all mutations on the package as it is, in so many processes.

    Raises:
      RuntimeError: a test fails or does not exist.
    """
    tests = list(dict.fromkeys(test for mutation in mutations for test in mutation.tests))
    if not tests:
        return
    with copied_package() as package:
        result = run_tests(package, tests, jobs)
    if result.returncode != _PASSED:
        raise RuntimeError(f"Tests fail without a mutation:\n{result.stdout[-3000:]}")


def read_results(path: Path | None) -> dict[str, str]:
    """Outcomes by names of mutations, of a file that `write_result` wrote; none if it is absent."""
    if path is None or not path.exists():
        return {}
    with open(path, newline="") as file:
        return dict(csv.reader(file))


def write_result(path: Path | None, name: str, result: str) -> None:
    """Adds a row to the file."""
    if path is not None:
        with open(path, "a", newline="") as file:
            csv.writer(file).writerow([name, result])


def main() -> int:
    """Runs the selected mutations; the exit status is 1 if one of them is not killed."""
    parser = argparse.ArgumentParser(description="Runs the mutations and the tests that kill them.")
    parser.add_argument("names", nargs="*", help="mutations or lists (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="mutations at the same time")
    parser.add_argument("--lists", type=Path, default=LISTS, help="folder of the lists")
    parser.add_argument("--results", type=Path, help="file of outcomes, which is gone on with")
    arguments = parser.parse_args()
    try:
        mutations = select(read_mutations(arguments.lists), arguments.names)
        done = read_results(arguments.results)
        missing = [mutation for mutation in mutations if mutation.name not in done]
        jobs = 0 if arguments.jobs == 1 else arguments.jobs
        check_unmutated([mutation for mutation in missing if mutation.applies(PACKAGE)], jobs)
    except (ValueError, RuntimeError) as error:
        sys.exit(str(error))
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for mutation, result in zip(missing, pool.map(outcome, missing), strict=True):
            done[mutation.name] = result
            write_result(arguments.results, mutation.name, result)
            print(f"{result:<16} {mutation.group}: {mutation.name}", flush=True)
    killed = sum(done[mutation.name] == "killed" for mutation in mutations)
    print(f"{killed} of {len(mutations)} killed")
    return int(killed < len(mutations))


if __name__ == "__main__":
    sys.exit(main())
