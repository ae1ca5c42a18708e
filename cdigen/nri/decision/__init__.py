"""Which devices a container gets, or why it must not start. Nothing here knows the protocol or the process.

``decide`` is the central function; it reads as the list of its steps: what the container asks for
(``request``), whether the configuration lets that count (``policy``, ``counted``), what it has already
(``existing_devices``), which devices are meant (``select``), and whether the driver will do
(``requirements``, by the facts in ``machine``). ``answer`` makes an adjustment of the decision for a runtime
whose abilities ``compat`` knows: CDI devices, or nodes and mounts (``raw``). ``audit`` looks for running
containers that were started without their devices. All that a decision depends on is a ``context``.
"""
