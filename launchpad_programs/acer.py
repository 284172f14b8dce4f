"""ACER as a program: `python -m retrax.launchpad_programs.acer --environment ID`."""

import sys

from .launch_command import main

if __name__ == "__main__":
    sys.exit(main("acer"))
