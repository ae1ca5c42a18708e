"""The registration of resources with the kubelet, and the servers of the resources."""
