"""Run the program from its folder: 'python3 -ISB .../cdigen/kernellog'."""

import sys

# The standard library comes first, because a folder next to cdigen may have the name of a standard module.
sys.path.append(__file__.rpartition("/cdigen/kernellog/")[0])

from cdigen.kernellog.main import run

run()
