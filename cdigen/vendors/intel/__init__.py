"""Intel: GPUs of the drivers i915 and xe, NPUs of intel_vpu, Gaudi accelerators of habanalabs.

``vendor`` is the entry. The kernel's side is all that there is: programs bring their libraries in the
image.
"""
