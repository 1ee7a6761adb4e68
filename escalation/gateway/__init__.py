"""The gateway: the CLI's way to its API, on loopback. It holds the key, so that the CLI need not.

`gateway.Gateway` serves one run; `upstream.upstream_from` says where the real API is and what
opens it; `spending.read_ledger` tells what a run used, also when its supervisor died with it.
"""
