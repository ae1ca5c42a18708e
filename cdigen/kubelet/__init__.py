"""The kubelet's device plugins: one process offers this host's devices to the kubelet, by CDI name.

``resources`` says what there is to offer, ``answers`` what a container gets, ``registration`` when the
kubelet has to be told what: these are values and decisions, without I/O. ``wire`` is the protocol (gRPC on
Unix sockets). The process (``plugin``) has two threads: the ``link`` serves and registers each resource and
waits for no disk; the main thread reads the state of the host (``frontend.host_state``).
"""
