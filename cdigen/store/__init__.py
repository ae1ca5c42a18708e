"""Everything that changes the host: spec files, driver views, device nodes, configuration files, own state.

Start at ``specs.publish``, the one way a spec reaches a directory, or at ``views.publishing``. They use:

- ``directory`` and ``pathwalk``: a directory opened once, by descriptor, never through a planted link;
- ``tempfiles``: content under a temporary name, renamed into place, and the sweep of what dead writers left;
- ``lock``: one writer at a time;
- ``state``: which content we wrote where, so that nothing foreign is ever replaced or removed;
- ``snapshot``: the file at a name now; ``ownership``: owner, mode and labels of the replaced file;
- ``failures``: the operating system's refusals, as errors with a hint.
"""
