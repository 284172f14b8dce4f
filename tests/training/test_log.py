"""The log: a file with everything, a console without tracebacks."""

import concurrent.futures
import logging
import sys
import threading

import pytest

from retrax.training.process import close_log, setup_log


@pytest.fixture
def log_directory(tmp_path):
    yield tmp_path
    close_log(logging.getLogger("retrax"))


def ours(logger):
    """Handlers, without those of pytest."""
    return [x for x in logger.handlers if type(x).__module__ == "retrax.training.process"]


def test_handlers_of_the_program_stay(log_directory):
    logger, handler = logging.getLogger("retrax"), logging.NullHandler()
    logger.addHandler(handler)
    try:
        close_log(setup_log(log_directory))
        assert handler in logger.handlers
        assert logger.propagate
    finally:
        logger.removeHandler(handler)


def test_log_goes_to_the_file_and_to_the_console(log_directory, capsys):
    """It is set up once, appended to, and leaves nothing behind."""
    setup_log(log_directory / "run").info("first")
    logger = setup_log(log_directory / "run")
    logger.info("step %d of [bold]%s[/bold]", 3, "Pong")
    logger.debug("not this")
    logging.getLogger("retrax.agents").warning("from a module")
    assert len(ours(logger)) == 2
    for _ in range(2):
        close_log(logger)
    logger.info("too late")
    assert (ours(logger), logger.propagate) == ([], True)
    lines = (log_directory / "run" / "log.txt").read_text().splitlines()
    told = ["INFO first", "INFO step 3 of [bold]Pong[/bold]", "WARNING from a module"]
    assert [line.split(" ", 2)[2] for line in lines] == told
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", [line.split(" ", 1)[1] for line in told])


def test_lines_break_between_words_in_a_terminal(log_directory, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    setup_log(log_directory).info("12 steps | /a/long-path/of-a-run-directory | ETA 0:00:10")
    assert capsys.readouterr().err.splitlines() == [
        "12 steps |",
        "  /a/long-path/of-a-run-directory",
        "  | ETA 0:00:10",
    ]
    (line,) = (log_directory / "log.txt").read_text().splitlines()
    assert line.endswith("| ETA 0:00:10")


def test_runs_in_two_threads_have_logs_of_their_own(tmp_path, capsys):
    """Both begin before either logs; the first ends before the second logs again."""
    both, first_ended = threading.Barrier(3), threading.Event()

    def run(name):
        logger = setup_log(tmp_path / name)
        both.wait(10)
        logger.info(f"{name} begins")
        both.wait(10)
        if name == "second":
            first_ended.wait(10)
            logger.info(f"{name} ends")
        close_log(logger)

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(run, name) for name in ("first", "second")]
        both.wait(10)
        both.wait(10)
        runs[0].result(10)
        logging.getLogger("retrax.agents").warning("from a thread without a run")
        first_ended.set()
        runs[1].result(10)
    texts = [(tmp_path / name / "log.txt").read_text() for name in ("first", "second")]
    lines = [[line.split(" ", 3)[3] for line in text.splitlines()] for text in texts]
    assert lines == [
        ["first begins"],
        ["second begins", "from a thread without a run", "second ends"],
    ]
    shown = capsys.readouterr().err.splitlines()
    assert sorted(shown) == sorted([*lines[0], *lines[1]])
    logger = logging.getLogger("retrax")
    assert (ours(logger), logger.propagate) == ([], True)
