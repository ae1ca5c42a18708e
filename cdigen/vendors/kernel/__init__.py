"""Readers of the kernel's files for all vendors: DRM devices, device nodes, modules, firmware."""
