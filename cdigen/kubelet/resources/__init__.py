"""What is offered to the kubelet: ``model`` has the values; other modules make them of the host's state."""
