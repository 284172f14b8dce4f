"""`python -m retrax.launchpad_programs ...` is `retrax launch ...`."""

import sys

from ..command.main import main

if __name__ == "__main__":
    sys.exit(main(["launch", *sys.argv[1:]]))
