"""The decision about the devices of a container, or about the refusal of the container.

The package does no I/O except reads of device nodes. It does not depend on the protocol or the process.

``decide`` is the central function. Each of its steps has modules:

- ``annotations``, ``mounts``, ``environment`` and ``vendor_variables`` read the device requests of the
  container. ``request`` defines a request;
- ``policy`` and ``permitted`` select the requests that the configuration permits;
- ``existing_devices`` detects the devices that the container already has;
- ``select`` selects the CDI devices that match the requests;
- ``requirements`` checks whether the driver and the GPUs (``host_gpus``) meet the requirements of the image.

``injection`` computes the NRI adjustment from the decision. ``raw`` computes device nodes and mounts for a
runtime that supports no CDI devices. ``compat`` lists the abilities of each runtime. ``audit`` finds running
containers that started without their devices. ``context`` contains all inputs of a decision.
"""
