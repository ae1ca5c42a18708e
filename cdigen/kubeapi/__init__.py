"""The client of the Kubernetes API server, with the standard library only.

``calls`` has requests and replies as values. ``credentials`` reads the server's address and the client's
identity. ``client`` sends calls. ``reflector`` lists and watches objects.
docs/decisions/0016-http-client-for-kubernetes.md has the reasons.
"""
