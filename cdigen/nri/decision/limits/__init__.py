"""The limits of requests: the policy, and the devices that a container already has."""
