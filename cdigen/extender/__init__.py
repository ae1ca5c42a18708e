"""The scheduler extender for shared GPUs, with gpushare's protocol. Several replicas may run at once.

``index`` has the pods and nodes, which ``watched_index`` keeps up to date. ``placement`` chooses GPUs.
``answers`` has the results for filter, prioritize and inspect. ``binding`` has the calls that reserve GPUs
and bind a pod, and ``binder`` sends them. ``server`` has the address and its requirements for clients, and
``service`` is the process.
"""
