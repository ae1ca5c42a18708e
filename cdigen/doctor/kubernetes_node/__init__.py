"""What cdigen reads of a Kubernetes node: sockets, checkpoint, and the kubelet's configuration."""
