"""The scheduler extender for shared GPUs, with gpushare's protocol. Several replicas may run at once.

``index`` has the pods and nodes from the events of the API. ``placement`` chooses GPUs. ``answers`` has the
results for filter, prioritize and inspect. ``binding`` reserves GPUs and binds pods. ``server`` has the
address and its requirements for clients, and ``service`` is the process.
"""
