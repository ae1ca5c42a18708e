"""Program that queries NVML.

``nvml.query`` starts the program as ``python -I FOLDER LIBRARY WHAT...``. WHAT are the parts to read
(``program.PARTS``) and the PCI addresses of the GPUs to query. Without addresses, the program queries all
GPUs. The program prints an entry for each GPU. An entry has the index, the address and the error of the GPU,
and the parts. If WHAT is only ``driver`` or ``module``, the program queries no GPU.
"""

import sys

from program import main

main(*sys.argv[1:])
