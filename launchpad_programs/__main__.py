"""`python -m retrax.launchpad_programs AGENT ...`, and `.AGENT ...` for every registered agent."""

import sys

from ..experiments.command import main

if __name__ == "__main__":
    name = __spec__.name.rpartition(".")[2]
    agent = [] if name == "__main__" else [name]
    sys.exit(main(["launch", *agent, *sys.argv[1:]]))
