"""The log: a file with everything, a console without tracebacks."""

import logging

import pytest

from retrax.runtime.log import close_log, setup_log


@pytest.fixture
def log_directory(tmp_path):
    yield tmp_path
    close_log(logging.getLogger("retrax"))


def test_log_goes_to_the_file_and_to_the_console(log_directory, capsys):
    logger = setup_log(log_directory / "run")
    logger.info("step %d of [bold]%s[/bold]", 3, "Pong")
    logger.debug("not this")
    logging.getLogger("retrax.agents").warning("from a module")
    lines = (log_directory / "run" / "log.txt").read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == [
        "INFO step 3 of [bold]Pong[/bold]",
        "WARNING from a module",
    ]
    out, err = capsys.readouterr()
    assert out == ""
    assert "step 3 of [bold]Pong[/bold]" in err
    assert "not this" not in err


def test_log_is_appended_to_and_set_up_once(log_directory, capsys):
    setup_log(log_directory).info("first")
    setup_log(log_directory).info("second")
    text = (log_directory / "log.txt").read_text()
    assert text.count("first") == text.count("second") == 1
    assert capsys.readouterr().err.count("second") == 1


def test_closed_log_leaves_nothing_behind(log_directory):
    logger = setup_log(log_directory)
    logger.info("in time")
    handlers = list(logger.handlers)
    close_log(logger)
    close_log(logger)
    logger.info("too late")
    assert logger.handlers == []
    assert logger.propagate
    assert "too late" not in (log_directory / "log.txt").read_text()
    assert all(getattr(handler, "stream", None) is None for handler in handlers[:1])
