"""Event sources: each source reports reasons to check the host again.

The modules import no vendor, spec or store code. Events may be lost, so the daemon reads the host after an
event, and also at regular intervals (docs/explanation/how-specs-stay-correct.md). Only the events of
``kernel_log`` and ``uevents`` carry data.

- ``triggers``: ``Trigger`` is the reason of an event, and ``TriggerQueue`` holds triggers for the reader,
  and ``Debounce`` is the delay after a burst of events;
- ``worker``: the thread of a source;
- ``files``: changes of files and folders;
- ``inotify``: the kernel's events for changes in folders;
- ``path_dependencies``: the folders to watch for a path;
- ``comparison``: the comparison of folders that cannot be watched;
- ``kernel_log``: the lines of drivers in the kernel log;
- ``uevents``: the events of the kernel and of udev;
- ``poll``: changes that make no event;
- ``supervisor``: the protocol of a source; the supervisor starts sources and restarts failed sources.
"""
