"""What cdigen asks of Kubernetes' API server, with the standard library alone.

``calls`` are requests and replies as values, ``credentials`` says where the server is and who we are,
``client`` sends, ``following`` keeps a list up to date (docs/decisions/0016-http-client-for-kubernetes.md).
"""
