"""All changes to the host: spec files, driver views, device nodes, configuration files, cdigen's own state.

Only ``specs.publish`` writes specs into a directory. ``views.publishing`` makes driver views. Both use:

- ``directory`` and ``pathwalk``: open a directory once, through trusted links only;
- ``tempfiles``: write a file under a temporary name, copy the owner and mode of the replaced file, rename the
  new file, and remove files of ended writers;
- ``lock``: one writer at a time;
- ``state``: the record of the spec files that cdigen wrote. cdigen does not change the content of foreign
  files;
- ``snapshot``: a file at one moment;
- ``failures``: errors of the operating system, with a hint, and a descriptor that is closed.
"""
