"""What any vendor reads of the kernel about PCI devices."""
