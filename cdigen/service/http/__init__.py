"""The HTTP server of every process.

- ``server``: ``HttpServer``, whose thread with an asyncio loop serves all clients, and its addresses;
- ``routes``: requests, responses, and the routes by their paths;
- ``client``: accepts and serves the connections of an address, within limits;
- ``messages``: the bytes of requests and responses, and the requests that the loopback port rejects.
"""
