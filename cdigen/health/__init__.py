"""The health of devices: the reasons why a device is unhealthy, and the conditions that end this state.

- ``state`` has the data types, and ``transitions`` applies events to the health state; both read no host;
- ``annotate`` writes the result into inventories;
- ``state_file`` and ``marks`` read and write the files in the state directory;
- ``tracker`` has the object that the daemon uses.
"""
