"""A pytest plugin for ceph/s3-tests that changes how long a run takes, not what is tested."""

import functools

import botocore.loaders


def pytest_configure(config):
    # The suite makes a dozen clients a test; read the service models from disk once, not once a client.
    loader = botocore.loaders.JSONFileLoader
    loader.load_file = functools.lru_cache(maxsize=64)(loader.load_file)
