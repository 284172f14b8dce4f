"""Every benchmark is run by a test, most of them in `documents/`; the mutations fit the package."""

import json
import pathlib

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"


def test_every_benchmark_is_run_by_a_test():
    tests = "".join(path.read_text() for path in pathlib.Path(__file__).parent.rglob("test_*.py"))
    programs = [path for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text()]
    assert len(programs) > 10
    for path in programs:
        assert path.name in tests, path.name


def test_every_mutation_applies_and_its_tests_exist():
    package, names = BENCHMARKS.parent, []
    for path in (BENCHMARKS / "mutations").glob("*.json"):
        for mutation in json.loads(path.read_text()):
            names.append(mutation["name"])
            assert (package / mutation["file"]).read_text().count(mutation["old"]) == 1, mutation
            assert mutation["new"] != mutation["old"], mutation
            assert mutation["tests"], mutation
            for test in mutation["tests"]:
                file, function = test.split("::")
                assert f"def {function.split('[')[0]}(" in (package / file).read_text(), test
    assert len(names) == len(set(names))
