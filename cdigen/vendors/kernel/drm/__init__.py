"""What any vendor reads of the kernel about DRM devices."""
