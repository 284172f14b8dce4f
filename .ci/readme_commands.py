"""Prints the commands of one ```bash block of the README: `readme_commands.py NUMBER`, from 0."""

import pathlib
import re
import sys

README = pathlib.Path(__file__).parents[1] / "README.md"
blocks = re.findall(r"^```bash\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
print(blocks[int(sys.argv[1])], end="")
