"""Shares of GPUs by memory, as values that the scheduler's extender and the kubelet's side have in common.

Pure: ``pods`` says what a pod asks, ``claims`` where it is, ``nodes`` what a node offers, ``ledger`` what was
promised on it, and ``room`` what is left.
"""
