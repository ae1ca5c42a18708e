"""What a long-running process has in common with the system: signals, service manager, log, its name.

- ``context``: ``service_process`` combines the following modules;
- ``signals`` and ``sd_notify``: signals, and the protocol of sd_notify(3);
- ``log`` and ``buffered_log``: log lines on stderr, and the log before the slow import of the logger;
- ``instance``: the name of the pod, container or service of this process.
"""
