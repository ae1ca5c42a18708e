"""What any vendor reads of the kernel: DRM devices, device nodes, modules, firmware."""
