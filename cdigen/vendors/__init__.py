"""The makers of GPUs: one folder per vendor behind the protocol of ``base``, listed in ``registry``."""
