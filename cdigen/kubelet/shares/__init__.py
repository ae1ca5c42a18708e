"""Shares of GPUs by memory on the node: which pod a request of the kubelet is for, and what is written then.

Allocate names no pod. The ids that the kubelet chose are the truth, since they carry their GPU: no other GPU
is ever given. What pods were promised by the scheduler's side, annotations and ledger, is made to follow.
"""
