"""What every test here uses: the server's address and keys, a boto3 client, and a new bucket."""

import dataclasses
import os
import random
import uuid

import boto3
import botocore.config
import pytest

import clients


@dataclasses.dataclass(frozen=True)
class Server:
    endpoint: str
    access_key: str
    secret_key: str

    def boto3(self, **config):
        config.setdefault("signature_version", "s3v4")
        config.setdefault("retries", {"max_attempts": 1})
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
            config=botocore.config.Config(s3={"addressing_style": "path"}, **config),
        )


@pytest.fixture(scope="session")
def server():
    return Server(*(os.environ[f"CLAYSTONE_{name}"] for name in ("ENDPOINT", "ACCESS_KEY", "SECRET_KEY")))


@pytest.fixture(scope="session")
def s3(server):
    return server.boto3()


@pytest.fixture
def bucket(s3):
    name = f"clients-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    yield name
    for upload in s3.list_multipart_uploads(Bucket=name).get("Uploads", []):
        s3.abort_multipart_upload(Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"])
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=name):
        keys = [{"Key": entry["Key"]} for entry in page.get("Contents", [])]
        if keys:
            s3.delete_objects(Bucket=name, Delete={"Objects": keys})
    s3.delete_bucket(Bucket=name)


@pytest.fixture(scope="session", params=clients.ALL, ids=lambda client: client.name)
def client(request, server, tmp_path_factory):
    return request.param(server, tmp_path_factory.mktemp(request.param.name))


@pytest.fixture(scope="session")
def noise():
    """Bytes that no compression or luck makes right: the same for the same size."""
    return lambda size: random.Random(size).randbytes(size)
