"""What each of the four clients must be able to do. What one client wrote is checked with boto3, and the other way round."""

import hashlib

import pytest
import requests

from clients import PART_BYTES

# Keys that a careless server decodes twice, splits, normalises or cannot print. Some clients have names of their own for some.
AWKWARD_KEYS = {
    "unicode": "Zürich/日本語/naïve 🪨.txt",
    "space": "two  words/ and more",
    "plus": "a+b/c+d",
    "escaped": "100%25/a%2Fb%20c",
    "query": "what?versionId=1&x=y",
    "hash": "a#b",
    "quotes": "it's \"so\" <b> & more",
    "dots": "a/.../b..c",
    "slashes": "//leading//double//",
    "tab": "tab\there",
    "control": "one\x01two",
}
NOT_BY = {
    # rclone has paths, not keys: it cleans slashes. s3cmd cannot read a listing or a name with control characters.
    "rclone": {"slashes"},
    "s3cmd": {"slashes", "tab", "control"},
}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def stored(s3, bucket, key):
    return sha256(s3.get_object(Bucket=bucket, Key=key)["Body"].read())


def needs(client, method):
    if method in client.cannot:
        pytest.skip(f"{client.name} has no such command")


@pytest.mark.parametrize("size", [0, 1, 70_000, 1_048_577])
def test_put_and_get_keep_every_byte(client, s3, bucket, noise, tmp_path, size):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(noise(size))
    client.put(bucket, "folder/object", source)
    assert stored(s3, bucket, "folder/object") == sha256(noise(size))
    client.get(bucket, "folder/object", target)
    assert sha256(target.read_bytes()) == sha256(noise(size))


def test_user_metadata_is_kept(client, s3, bucket, tmp_path):
    (tmp_path / "source").write_bytes(b"with metadata")
    client.put(bucket, "object", tmp_path / "source", metadata={"colour": "red brick", "empty-not": "1"})
    metadata = s3.head_object(Bucket=bucket, Key="object")["Metadata"]
    assert metadata["colour"] == "red brick" and metadata["empty-not"] == "1"


def test_a_range_is_just_that_range(client, s3, bucket, noise, tmp_path):
    data = noise(300_000)
    s3.put_object(Bucket=bucket, Key="object", Body=data)
    assert client.get_range(bucket, "object", 65_530, 131_080, tmp_path / "part") == data[65_530:131_081]


def test_a_large_file_goes_up_in_parts(client, s3, bucket, noise, tmp_path):
    data = noise(3 * PART_BYTES + 12_345)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(data)
    client.put_large(bucket, "large", source)
    head = s3.head_object(Bucket=bucket, Key="large")
    digests = b"".join(hashlib.md5(data[at : at + PART_BYTES]).digest() for at in range(0, len(data), PART_BYTES))
    assert head["ETag"] == f'"{hashlib.md5(digests).hexdigest()}-4"'
    assert head["ContentLength"] == len(data)
    client.get(bucket, "large", target)
    assert sha256(target.read_bytes()) == sha256(data)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)


def test_an_unfinished_upload_is_listed_and_aborted(client, s3, bucket, noise):
    upload = s3.create_multipart_upload(Bucket=bucket, Key="unfinished")["UploadId"]
    s3.upload_part(Bucket=bucket, Key="unfinished", UploadId=upload, PartNumber=1, Body=noise(1000))
    assert client.uploads(bucket) == ["unfinished"]
    client.abort(bucket, "unfinished", upload)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_listing_by_prefix_and_folder_over_several_pages(client, s3, bucket):
    keys = ["a", "b/1", "b/2", "b/c/3", "b/c/4", "b/d/5", "b/e", "ba", "c/6"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    assert client.keys(bucket) == keys
    assert client.keys(bucket, "b/") == [key for key in keys if key.startswith("b/")]
    assert sorted(client.folder(bucket, "b/")) == ["b/1", "b/2", "b/c/", "b/d/", "b/e"]


def test_copy_makes_an_equal_object(client, s3, bucket, noise):
    data = noise(50_000)
    s3.put_object(Bucket=bucket, Key="from here", Body=data, ContentType="text/plain", Metadata={"kept": "yes"})
    client.copy(bucket, "from here", "to/there+too")
    copied = s3.get_object(Bucket=bucket, Key="to/there+too")
    assert sha256(copied["Body"].read()) == sha256(data)
    assert copied["ContentType"] == "text/plain" and copied["Metadata"]["kept"] == "yes"
    assert stored(s3, bucket, "from here") == sha256(data)


def test_delete_removes_one_key(client, s3, bucket):
    s3.put_object(Bucket=bucket, Key="gone", Body=b"1")
    s3.put_object(Bucket=bucket, Key="gone too?", Body=b"2")
    client.delete(bucket, "gone")
    assert client.keys(bucket) == ["gone too?"]


def test_a_presigned_url_reads_without_keys(client, s3, bucket, noise):
    s3.put_object(Bucket=bucket, Key="shared/a b+c", Body=noise(9_999))
    url = client.presign(bucket, "shared/a b+c")
    answer = requests.get(url)
    assert answer.status_code == 200, answer.text
    assert sha256(answer.content) == sha256(noise(9_999))
    assert requests.get(url.replace("shared", "shamed")).status_code == 403


def test_a_presigned_url_writes_without_keys(client, s3, bucket, noise):
    needs(client, "presign_put")
    url = client.presign_put(bucket, "dropped")
    assert requests.put(url, data=noise(20_000)).status_code == 200
    assert stored(s3, bucket, "dropped") == sha256(noise(20_000))


@pytest.mark.parametrize("kind", AWKWARD_KEYS)
def test_an_awkward_key_comes_back_as_it_was(client, s3, bucket, noise, tmp_path, kind):
    if kind in NOT_BY.get(client.name, ()):
        pytest.skip(f"{client.name} cannot name such a key")
    key = AWKWARD_KEYS[kind]
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(noise(4_097))
    client.put(bucket, key, source)
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]] == [key]
    assert stored(s3, bucket, key) == sha256(noise(4_097))
    client.get(bucket, key, target)
    assert sha256(target.read_bytes()) == sha256(noise(4_097))
    client.delete(bucket, key)
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)
