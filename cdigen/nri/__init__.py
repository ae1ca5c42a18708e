"""The NRI plugin (Node Resource Interface): it gives containers the devices that they ask for.

Containers ask by environment or annotation and run with plain runc. ``wire`` is the protocol, ``decision``
says who gets what, ``pods`` are the values that both speak of.

The process (``plugin``) has two threads. The ``link`` answers the runtime (``serving``) and never waits for a
disk; the main thread reads the state of the host (``frontend.host_state``), writes log, status and metrics
(``reporter``, ``status``, ``metrics``) and looks for containers that were started before the plugin. Between
them lies the ``shared_state``, in which the link leaves ``events``.
"""
