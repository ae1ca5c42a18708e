"""Driver views: folders of a driver's files, made once, mounted into containers, pruned when unused.

- ``publishing``: ``publish_view`` makes the view of a plan, ``find_view`` looks for it;
- ``pruning``: ``prune`` removes the views that nobody uses;
- ``sources``: which of the host's files may enter a view, and its name, derived from them;
- ``builder``: how files get into a view: hard links, reflinks, copies;
- ``folder``: the directory that holds the views, what lies in one, the boot in which they were last pruned;
- ``mounts``: which views are mounted anywhere on this machine.
"""
