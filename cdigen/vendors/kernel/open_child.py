"""Program that opens device nodes, one after the other.

``opening`` starts the program as ``python -I -S open_child.py PATH...``. For each path, the program prints a
line with the error number. The number 0 means that the node was opened. If a device is broken, the program
may hang in the kernel, and cannot be interrupted. The program does not import modules of cdigen.
"""

import os
import sys

for path in sys.argv[1:]:
    number = 0
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK))
    except OSError as error:
        number = error.errno or 0
    os.write(1, f"{number}\n".encode())
