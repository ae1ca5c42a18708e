"""The scheduler's extender for shared GPUs: gpushare's protocol, kept by more than one replica at once.

``index`` knows pods and nodes by the API's events, ``placement`` chooses GPUs, ``answers`` says what the
scheduler asks, ``binding`` promises, and ``server`` and ``service`` are the process.
"""
