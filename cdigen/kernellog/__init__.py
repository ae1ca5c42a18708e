"""The program that reads the kernel's log, and passes on what drivers of GPUs and the bus have said.

It alone needs a privilege for that (CAP_SYSLOG), so it is a program of its own, which can do nothing else:
it has one file open to read and one to write, can open no other, and imports the standard library alone.

- ``main``: opens the log, gives up its rights, and passes on lines until its reader is gone;
- ``records``: a record of /dev/kmsg as text and numbers; ``drivers``: whose lines are passed on. Both pure;
- ``reading``: the log's records one after the other, those that were lost, and when each was written;
- ``thinning``: a flood of lines that say the same. Pure;
- ``rights``: what is given up once the log is open.
"""
