"""The vendor Intel: GPUs of the drivers i915 and xe, NPUs of intel_vpu, and Gaudis of habanalabs.

``vendor`` implements the vendor protocol. Containers need only the kernel's devices, because images contain
the libraries.
"""
