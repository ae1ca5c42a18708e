"""The plugin for NRI (Node Resource Interface), which injects the devices that containers request.

Containers request devices by annotations, mounts or environment variables. They need no special OCI runtime.
``wire`` implements the protocol. ``decision`` selects the devices of each container. ``pods`` defines the
values that both packages use.

The process (``plugin``) has two threads. The thread of the ``link`` serves the runtime (``serving``) and does
no disk I/O. The main thread reads the state of the host (``service.host_state``), and writes log, status and
metrics (``reporter``, ``status``, ``metrics``). The main thread also audits the containers that existed
before the registration. Both threads use ``shared_state``. The link stores ``events`` there for the main
thread.
"""
