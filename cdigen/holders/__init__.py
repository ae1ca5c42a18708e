"""Who has the devices: what container engines tell at their sockets, and whose a process is, by its cgroup.

All of it is read when somebody wants to know (``asking``), and never else.
"""
