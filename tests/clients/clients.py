"""Four S3 clients behind one face, each used the way its own users use it.

A method that a client cannot offer is missing from its `can`; the tests skip it by name. All but boto3 run as processes.
"""

import json
import os
import pathlib
import subprocess
import urllib.parse

import boto3.s3.transfer

PART_BYTES = 5 * 1024 * 1024


class Failed(Exception):
    """A client process ended with an error; holds what it said."""


class Client:
    """One S3 client bound to one server. `keys` are the awkward keys that it can name; see AWKWARD_KEYS."""

    name = ""
    cannot = frozenset()

    def __init__(self, server, directory):
        self.server = server
        self.directory = pathlib.Path(directory)

    def run(self, *command, env=None):
        done = subprocess.run(
            [str(word) for word in command], env={**os.environ, **(env or {})}, capture_output=True, timeout=50, check=False
        )
        if done.returncode != 0:
            raise Failed(f"{command}\n{done.stdout.decode(errors='replace')}\n{done.stderr.decode(errors='replace')}")
        return done.stdout


class AwsCli(Client):
    name = "aws"
    cannot = frozenset({"presign_put"})

    def __init__(self, server, directory):
        super().__init__(server, directory)
        config = self.directory / "config"
        config.write_text(
            "[default]\nregion = us-east-1\nmax_attempts = 1\ns3 =\n  addressing_style = path\n  signature_version = s3v4\n"
            f"  multipart_threshold = {PART_BYTES}\n  multipart_chunksize = {PART_BYTES}\n"
        )
        self.env = {
            "AWS_CONFIG_FILE": str(config),
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "AWS_PAGER": "",
        }

    def aws(self, *words):
        return self.run("aws", "--endpoint-url", self.server.endpoint, *words, env=self.env)

    def api(self, operation, bucket, *words):
        out = self.aws("--output", "json", "s3api", operation, "--bucket", bucket, *words)
        return json.loads(out) if out.strip() else {}

    def put(self, bucket, key, path, metadata=None):
        words = ["--metadata", json.dumps(metadata)] if metadata else []
        self.api("put-object", bucket, f"--key={key}", "--body", path, *words)

    def put_large(self, bucket, key, path):
        self.aws("s3", "cp", "--no-progress", path, f"s3://{bucket}/{key}")

    def get(self, bucket, key, path):
        self.api("get-object", bucket, f"--key={key}", path)

    def get_range(self, bucket, key, first, last, path):
        self.api("get-object", bucket, "--key", key, "--range", f"bytes={first}-{last}", path)
        return path.read_bytes()

    def keys(self, bucket, prefix=""):
        out = self.api("list-objects-v2", bucket, "--prefix", prefix, "--page-size", "3")
        return [entry["Key"] for entry in out.get("Contents") or []]

    def folder(self, bucket, prefix):
        out = self.api("list-objects-v2", bucket, "--prefix", prefix, "--delimiter", "/", "--page-size", "2")
        keys = [entry["Key"] for entry in out.get("Contents") or []]
        return keys + [entry["Prefix"] for entry in out.get("CommonPrefixes") or []]

    def copy(self, bucket, source, target):
        self.aws("s3", "cp", "--no-progress", f"s3://{bucket}/{source}", f"s3://{bucket}/{target}")

    def delete(self, bucket, key):
        self.api("delete-object", bucket, f"--key={key}")

    def presign(self, bucket, key):
        return self.aws("s3", "presign", f"s3://{bucket}/{key}").decode().strip()

    def uploads(self, bucket):
        return [upload["Key"] for upload in self.api("list-multipart-uploads", bucket).get("Uploads") or []]

    def abort(self, bucket, key, upload):
        self.api("abort-multipart-upload", bucket, "--key", key, "--upload-id", upload)


class Boto3(Client):
    name = "boto3"

    def __init__(self, server, directory):
        super().__init__(server, directory)
        self.s3 = server.boto3()
        self.transfer = boto3.s3.transfer.TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES)

    def put(self, bucket, key, path, metadata=None):
        with open(path, "rb") as body:
            self.s3.put_object(Bucket=bucket, Key=key, Body=body, Metadata=metadata or {})

    def put_large(self, bucket, key, path):
        self.s3.upload_file(str(path), bucket, key, Config=self.transfer)

    def get(self, bucket, key, path):
        self.s3.download_file(bucket, key, str(path), Config=self.transfer)

    def get_range(self, bucket, key, first, last, path):
        return self.s3.get_object(Bucket=bucket, Key=key, Range=f"bytes={first}-{last}")["Body"].read()

    def keys(self, bucket, prefix=""):
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, PaginationConfig={"PageSize": 3})
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def folder(self, bucket, prefix):
        pages = self.s3.get_paginator("list_objects").paginate(
            Bucket=bucket, Prefix=prefix, Delimiter="/", PaginationConfig={"PageSize": 2}
        )
        found = []
        for page in pages:
            found += [entry["Key"] for entry in page.get("Contents", [])]
            found += [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]
        return found

    def copy(self, bucket, source, target):
        self.s3.copy({"Bucket": bucket, "Key": source}, bucket, target)

    def delete(self, bucket, key):
        self.s3.delete_object(Bucket=bucket, Key=key)

    def presign(self, bucket, key):
        return self.s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=600)

    def presign_put(self, bucket, key):
        return self.s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=600)

    def uploads(self, bucket):
        return [upload["Key"] for upload in self.s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]

    def abort(self, bucket, key, upload):
        self.s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)


class Rclone(Client):
    name = "rclone"
    cannot = frozenset({"presign_put"})

    def __init__(self, server, directory):
        super().__init__(server, directory)
        self.env = {
            "RCLONE_CONFIG": "/dev/null",
            "RCLONE_CONFIG_CLAY_TYPE": "s3",
            "RCLONE_CONFIG_CLAY_PROVIDER": "Other",
            "RCLONE_CONFIG_CLAY_ENDPOINT": server.endpoint,
            "RCLONE_CONFIG_CLAY_ACCESS_KEY_ID": server.access_key,
            "RCLONE_CONFIG_CLAY_SECRET_ACCESS_KEY": server.secret_key,
            "RCLONE_CONFIG_CLAY_REGION": "us-east-1",
            "RCLONE_S3_LIST_CHUNK": "3",
            "RCLONE_RETRIES": "1",
            "RCLONE_LOW_LEVEL_RETRIES": "1",
        }

    def rclone(self, *words):
        return self.run("rclone", "--quiet", *words, env=self.env)

    def put(self, bucket, key, path, metadata=None):
        words = [word for name, value in (metadata or {}).items() for word in ("--header-upload", f"x-amz-meta-{name}: {value}")]
        self.rclone("copyto", *words, path, f"clay:{bucket}/{key}")

    def put_large(self, bucket, key, path):
        sizes = ("--s3-upload-cutoff", PART_BYTES, "--s3-chunk-size", PART_BYTES)
        self.rclone("copyto", *(f"{word}B" if isinstance(word, int) else word for word in sizes), path, f"clay:{bucket}/{key}")

    def get(self, bucket, key, path):
        self.rclone("copyto", f"clay:{bucket}/{key}", path)

    def get_range(self, bucket, key, first, last, path):
        return self.rclone("cat", "--offset", first, "--count", last - first + 1, f"clay:{bucket}/{key}")

    def keys(self, bucket, prefix=""):
        # rclone lists folders, not prefixes: it filters on this side what does not end in a slash.
        folder, _, rest = prefix.rpartition("/")
        out = self.rclone("lsf", "--recursive", "--files-only", f"clay:{bucket}/{folder}").decode().splitlines()
        names = (f"{folder}/{name}" if folder else name for name in out)
        return sorted((name for name in names if name.startswith(prefix)), key=str.encode)

    def folder(self, bucket, prefix):
        return [prefix + name for name in self.rclone("lsf", f"clay:{bucket}/{prefix}").decode().splitlines()]

    def copy(self, bucket, source, target):
        self.rclone("copyto", f"clay:{bucket}/{source}", f"clay:{bucket}/{target}")

    def delete(self, bucket, key):
        self.rclone("deletefile", f"clay:{bucket}/{key}")

    def presign(self, bucket, key):
        return self.rclone("link", "--expire", "10m", f"clay:{bucket}/{key}").decode().strip()

    def uploads(self, bucket):
        out = json.loads(self.rclone("backend", "list-multipart-uploads", f"clay:{bucket}"))
        return [upload["Key"] for upload in out[bucket]]

    def abort(self, bucket, key, upload):
        self.rclone("backend", "cleanup", f"clay:{bucket}", "-o", "max-age=0s")


class S3cmd(Client):
    name = "s3cmd"
    cannot = frozenset({"presign_put"})

    def __init__(self, server, directory):
        super().__init__(server, directory)
        host = urllib.parse.urlsplit(server.endpoint)
        self.config = self.directory / "s3cfg"
        self.config.write_text(
            f"[default]\naccess_key = {server.access_key}\nsecret_key = {server.secret_key}\nhost_base = {host.netloc}\n"
            f"host_bucket = {host.netloc}\nuse_https = {host.scheme == 'https'}\nbucket_location = us-east-1\nmax_retries = 1\n"
        )

    def s3cmd(self, *words):
        return self.run("s3cmd", "--config", self.config, "--no-progress", *words)

    def put(self, bucket, key, path, metadata=None):
        words = [f"--add-header=x-amz-meta-{name}:{value}" for name, value in (metadata or {}).items()]
        self.s3cmd("put", *words, path, f"s3://{bucket}/{key}")

    def put_large(self, bucket, key, path):
        self.s3cmd("put", f"--multipart-chunk-size-mb={PART_BYTES >> 20}", path, f"s3://{bucket}/{key}")

    def get(self, bucket, key, path):
        self.s3cmd("get", "--force", f"s3://{bucket}/{key}", path)

    def get_range(self, bucket, key, first, last, path):
        # s3cmd asks for a range when it continues a download that stopped; only up to the end.
        path.write_bytes(bytes(first))
        self.s3cmd("get", "--continue", f"s3://{bucket}/{key}", path)
        return path.read_bytes()[first : last + 1]

    def keys(self, bucket, prefix=""):
        return self.names(self.s3cmd("ls", "--recursive", f"s3://{bucket}/{prefix}"), bucket)

    def folder(self, bucket, prefix):
        return self.names(self.s3cmd("ls", f"s3://{bucket}/{prefix}"), bucket)

    @staticmethod
    def names(out, bucket):
        return [line.split(f"s3://{bucket}/", 1)[1] for line in out.decode().splitlines()]

    def copy(self, bucket, source, target):
        self.s3cmd("cp", f"s3://{bucket}/{source}", f"s3://{bucket}/{target}")

    def delete(self, bucket, key):
        self.s3cmd("del", f"s3://{bucket}/{key}")

    def presign(self, bucket, key):
        # The only one of the four that signs URLs in version 2.
        return self.s3cmd("signurl", f"s3://{bucket}/{key}", "+600").decode().strip()

    def uploads(self, bucket):
        rows = self.s3cmd("multipart", f"s3://{bucket}").decode().splitlines()
        return [row.split("\t")[1].split(f"s3://{bucket}/", 1)[1] for row in rows if row.count("\t") == 2 and "s3://" in row]

    def abort(self, bucket, key, upload):
        self.s3cmd("abortmp", f"s3://{bucket}/{key}", upload)


ALL = [AwsCli, Boto3, Rclone, S3cmd]
