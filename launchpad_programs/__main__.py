"""`python -m retrax.launchpad_programs AGENT ...`, and `.AGENT ...` for every registered agent."""

import sys

from ..experiments.commands.main import main

if __name__ == "__main__":
    assert __spec__ is not None
    name = __spec__.name.rpartition(".")[2]
    agent = [] if name == "__main__" else [name]
    sys.exit(main(["launch", *agent, *sys.argv[1:]]))
