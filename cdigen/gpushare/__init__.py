"""GPUs that pods share by memory: values for the scheduler extender and the device plugin.

``pods`` reads the request of a pod. ``reservations`` reads the GPUs of a pod. ``nodes`` reads the capacity of
a node. ``ledger`` reads the reservations on a node. ``free_capacity`` computes the free units of a node. The
package does no I/O.
"""
