"""D4PG as a program: `python -m retrax.launchpad_programs.d4pg --environment ID`."""

import sys

from .launch_command import main

if __name__ == "__main__":
    sys.exit(main("d4pg"))
