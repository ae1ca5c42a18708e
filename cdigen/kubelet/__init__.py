"""The device plugins of cdigen: one process advertises the devices of this host to the kubelet.

Containers get the devices by CDI names. The modules ``resources``, ``container_response`` and
``registration`` do no I/O. ``resources`` computes the resources. ``container_response`` builds the response
for a container. ``registration`` decides the steps of a registration. ``wire`` implements the protocol, which
is gRPC on Unix sockets.

The process (``plugin``) has two threads. The thread of ``link`` serves and registers each resource. This
thread never waits for a disk. The main thread reads the state of the host (``service.host_state``).
"""
