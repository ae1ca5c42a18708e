"""A program that reads the kernel log, and forwards the lines of GPU drivers and of the PCI bus.

A read of the kernel log requires a privilege (CAP_SYSLOG), so a separate program reads the log. The program
has one file open for reading and one file open for writing, and can open no other file. It imports only the
standard library.

- ``main``: opens the log, drops privileges, and forwards lines until the reader closes the pipe;
- ``drivers``: the drivers whose lines are forwarded; pure;
- ``reading``: the records of the log in order with their times, and the number of lost records;
- ``rate_limiter``: reduces a flood of equal lines; pure.
"""
