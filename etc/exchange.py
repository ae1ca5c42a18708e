"""exchange.py NEW OLD: replace the folder OLD by NEW atomically, and remove OLD.

Programs that open files in OLD always find them: renameat2(2) exchanges the two names. On a file system
without this (EINVAL, EXDEV), OLD is renamed just before NEW.
"""

import ctypes
import os
import shutil
import sys

AT_FDCWD = -100
RENAME_EXCHANGE = 2


def exchange(new: str, old: str) -> None:
    """Replace OLD by NEW; raises OSError."""
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
