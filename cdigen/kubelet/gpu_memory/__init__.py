"""GPU memory units on the node: the package finds the pod of each request, and the pod's reservation.

An Allocate request names no pod. Each id contains its GPU, so the ids in the request decide which GPU a
container gets. cdigen changes the reservations of pods to match these ids. The reservations are in
annotations and in the ledger.
"""
