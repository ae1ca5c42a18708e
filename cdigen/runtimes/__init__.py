"""The runtimes that read CDI specs: their releases, their configuration, and the devices that they find.

``releases`` is the table of the releases. ``installed`` finds the runtimes of a host. ``settings`` reads the
configuration of a runtime, and ``edits`` changes it. Both packages use ``documents``. ``scan`` returns the
devices that a runtime finds in the spec directories. ``clashes`` returns the specs that conflict with a new
spec.
"""
