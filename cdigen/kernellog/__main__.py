"""Start the program from its own folder: 'python3 -ISB .../cdigen/kernellog'."""

import sys

# Behind the standard library: beside cdigen may lie what has the name of a part of it.
sys.path.append(__file__.rpartition("/cdigen/kernellog/")[0])

from cdigen.kernellog.main import run

run()
