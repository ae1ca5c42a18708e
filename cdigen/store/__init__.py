"""All that changes the host: the spec files, the state file that says which of them are ours, the lock.

``specfiles.publish`` is the one way a spec reaches a directory; the rest serves it, one topic a file:

- ``directory``: a directory opened once, by descriptor, its missing components made;
- ``lock``: one writer at a time;
- ``state``: which content we wrote where, so that nothing foreign is ever replaced or removed;
- ``present``: what lies at a name now;
- ``views`` and the ``view...`` files: folders of a driver's files, made once, mounted, and pruned;
- ``tempfiles``: content under a temporary name, and the sweep of what dead writers left;
- ``failures``: the operating system's refusals, in words.
"""
