"""The responses to the kubelet's allocation requests, and the devices in use."""
