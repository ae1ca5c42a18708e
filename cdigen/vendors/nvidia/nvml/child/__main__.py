"""The child process that asks NVML: ``python -I FOLDER LIBRARY WHAT...``, started by ``nvml.ask``.

WHAT are parts of a GPU's entry (``program.PARTS``), and the PCI addresses of the GPUs that are asked, by
default all; index, address and error are in each entry.
"""

import sys

from program import main

main(*sys.argv[1:])
