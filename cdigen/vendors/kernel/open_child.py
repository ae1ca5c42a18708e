"""Open device nodes, one after the other: ``python -I -S open_child.py PATH...``, started by ``opening``.

Each path that was tried is a line with the number of the error, 0 for none. To open a node of a broken device
may hang in the kernel, where nothing ends it. Nothing of cdigen is imported here.
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
