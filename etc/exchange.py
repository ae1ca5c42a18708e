"""exchange.py NEW OLD: the folder NEW takes the place of OLD in one step, and OLD is removed.

Nobody who opens files below OLD meanwhile finds none: renameat2(2) exchanges the two names. On a file
system that cannot (EINVAL, EXDEV), OLD goes away just before NEW comes.
"""

import ctypes
import os
import shutil
import sys

AT_FDCWD = -100
RENAME_EXCHANGE = 2


def exchange(new: str, old: str) -> None:
    """Do so; OSError is for whoever installs to read."""
    if not os.path.lexists(old):
        os.rename(new, old)
        return
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    names = (AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(old))
    if renameat2 is None or renameat2(*names, RENAME_EXCHANGE) != 0:
        aside = f"{old}.old"
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(old, aside)
        os.rename(new, old)
        os.rename(aside, new)
    shutil.rmtree(new)


exchange(*sys.argv[1:])
