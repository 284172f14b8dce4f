"""Agent57 as a program: `python -m retrax.launchpad_programs.agent57 --environment ID`."""

import sys

from .launch_command import main

if __name__ == "__main__":
    sys.exit(main("agent57"))
