"""Who makes the GPU: one folder per vendor behind the protocol of ``base``, listed in ``registry``."""
