"""The finer points of the protocol, asked with boto3: conditions, checksums, tags, CORS, multipart, listing, errors."""

import base64
import concurrent.futures
import hashlib
import zlib

import awscrt.checksums
import botocore.exceptions
import pytest
import requests

PART_BYTES = 5 * 1024 * 1024


def crc(function):
    return lambda data, size=4: base64.b64encode(function(data).to_bytes(size, "big")).decode()


DIGESTS = {
    "CRC32": crc(zlib.crc32),
    "CRC32C": crc(awscrt.checksums.crc32c),
    "CRC64NVME": lambda data: crc(awscrt.checksums.crc64nvme)(data, 8),
    "SHA1": lambda data: base64.b64encode(hashlib.sha1(data).digest()).decode(),
    "SHA256": lambda data: base64.b64encode(hashlib.sha256(data).digest()).decode(),
}


def refused(status, code, call, **arguments):
    """The call must fail with this status and code (None where the answer has no body); returns the answer."""
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        call(**arguments)
    answer = caught.value.response
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == status, answer
    if code:
        assert answer["Error"]["Code"] == code, answer
    return answer


def body(s3, bucket, key, **arguments):
    return s3.get_object(Bucket=bucket, Key=key, **arguments)["Body"].read()


# Buckets.


def test_bucket_life(s3, bucket):
    assert bucket in [entry["Name"] for entry in s3.list_buckets()["Buckets"]]
    s3.head_bucket(Bucket=bucket)
    s3.get_bucket_location(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="kept", Body=b"1")
    refused(409, "BucketNotEmpty", s3.delete_bucket, Bucket=bucket)
    refused(404, "NoSuchBucket", s3.list_objects_v2, Bucket=bucket + "-not")
    refused(404, None, s3.head_bucket, Bucket=bucket + "-not")
    refused(404, "NoSuchBucket", s3.put_object, Bucket=bucket + "-not", Key="k", Body=b"1")
    refused(404, "NoSuchBucket", s3.delete_bucket, Bucket=bucket + "-not")
    refused(400, "InvalidBucketName", s3.create_bucket, Bucket="ab")


# Reading: ranges, conditions, headers.


def test_ranges(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    for asked, got, shown in [("0-0", b"0", "0-0"), ("3-", b"3456789", "3-9"), ("-4", b"6789", "6-9"), ("8-99", b"89", "8-9"), ("-99", b"0123456789", "0-9")]:
        answer = s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={asked}")
        assert (answer["Body"].read(), answer["ContentRange"]) == (got, f"bytes {shown}/10")
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206
    refused(416, "InvalidRange", s3.get_object, Bucket=bucket, Key="k", Range="bytes=10-")
    s3.put_object(Bucket=bucket, Key="empty", Body=b"")
    refused(416, "InvalidRange", s3.get_object, Bucket=bucket, Key="empty", Range="bytes=0-1")


def test_conditional_get(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"one")["ETag"]
    assert etag == f'"{hashlib.md5(b"one").hexdigest()}"'
    changed = s3.head_object(Bucket=bucket, Key="k")["LastModified"]
    assert body(s3, bucket, "k", IfMatch=etag) == b"one"
    assert body(s3, bucket, "k", IfNoneMatch='"other"') == b"one"
    assert body(s3, bucket, "k", IfModifiedSince="Sat, 29 Oct 1994 19:43:31 GMT") == b"one"
    refused(412, "PreconditionFailed", s3.get_object, Bucket=bucket, Key="k", IfMatch='"other"')
    refused(412, "PreconditionFailed", s3.get_object, Bucket=bucket, Key="k", IfUnmodifiedSince="Sat, 29 Oct 1994 19:43:31 GMT")
    answer = refused(304, None, s3.get_object, Bucket=bucket, Key="k", IfNoneMatch=etag)
    assert answer["ResponseMetadata"]["HTTPHeaders"]["etag"] == etag
    refused(304, None, s3.get_object, Bucket=bucket, Key="k", IfModifiedSince=changed)
    refused(304, None, s3.head_object, Bucket=bucket, Key="k", IfNoneMatch=etag)


def test_headers_of_an_object_are_kept(s3, bucket):
    kept = {
        "ContentType": "text/html; charset=utf-8",
        "CacheControl": "max-age=60",
        "ContentDisposition": 'attachment; filename="a.txt"',
        "ContentEncoding": "gzip",
        "ContentLanguage": "de",
        "Metadata": {"one": "1", "empty": ""},
    }
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", **kept)
    for answer in (s3.head_object(Bucket=bucket, Key="k"), s3.get_object(Bucket=bucket, Key="k")):
        assert {name: answer[name] for name in kept} == kept
    answer = s3.get_object(Bucket=bucket, Key="k", ResponseContentType="a/b", ResponseCacheControl="no-cache")
    assert (answer["ContentType"], answer["CacheControl"]) == ("a/b", "no-cache")
    s3.put_object(Bucket=bucket, Key="k", Body=b"y")
    assert s3.head_object(Bucket=bucket, Key="k")["Metadata"] == {}


def test_missing_key(s3, bucket):
    refused(404, "NoSuchKey", s3.get_object, Bucket=bucket, Key="absent")
    refused(404, None, s3.head_object, Bucket=bucket, Key="absent")
    assert s3.delete_object(Bucket=bucket, Key="absent")["ResponseMetadata"]["HTTPStatusCode"] == 204


# Writing: conditions, limits.


def test_conditional_put(s3, bucket):
    put = lambda **condition: s3.put_object(Bucket=bucket, Key="k", Body=b"new", **condition)
    first = s3.put_object(Bucket=bucket, Key="k", Body=b"first", IfNoneMatch="*")["ETag"]
    refused(412, "PreconditionFailed", put, IfNoneMatch="*")
    refused(412, "PreconditionFailed", put, IfMatch='"0123456789abcdef0123456789abcdef"')
    assert body(s3, bucket, "k") == b"first"
    second = put(IfMatch=first)["ETag"]
    refused(412, "PreconditionFailed", put, IfMatch=first)
    put(IfMatch=second)
    refused(404, "NoSuchKey", s3.put_object, Bucket=bucket, Key="absent", Body=b"x", IfMatch=first)


def test_of_many_creators_one_wins(server, bucket):
    clients = [server.boto3() for _ in range(8)]

    def create(number):
        try:
            clients[number].put_object(Bucket=bucket, Key="lock", Body=str(number).encode(), IfNoneMatch="*")
            return number
        except botocore.exceptions.ClientError as error:
            assert error.response["Error"]["Code"] in ("PreconditionFailed", "ConditionalRequestConflict")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(create, range(8)) if number is not None]
    assert len(winners) == 1
    assert body(clients[0], bucket, "lock") == str(winners[0]).encode()


def test_limits_of_keys_and_metadata(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k" * 1024, Body=b"x")
    refused(400, "KeyTooLongError", s3.put_object, Bucket=bucket, Key="k" * 1025, Body=b"x")
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata={"m": "v" * 2000})
    refused(400, "MetadataTooLarge", s3.put_object, Bucket=bucket, Key="k2", Body=b"x", Metadata={"m": "v" * 2100})


def test_content_md5_is_checked(s3, bucket):
    good = base64.b64encode(hashlib.md5(b"data").digest()).decode()
    s3.put_object(Bucket=bucket, Key="k", Body=b"data", ContentMD5=good)
    refused(400, "BadDigest", s3.put_object, Bucket=bucket, Key="k", Body=b"atad", ContentMD5=good)
    refused(400, "InvalidDigest", s3.put_object, Bucket=bucket, Key="k", Body=b"data", ContentMD5="YWJyYWNhZGFicmE=")
    assert body(s3, bucket, "k") == b"data"


# Checksums.


@pytest.mark.parametrize("algorithm", DIGESTS)
def test_checksum_of_an_object(s3, bucket, noise, algorithm):
    data, field = noise(100_001), f"Checksum{algorithm}"
    put = s3.put_object(Bucket=bucket, Key="k", Body=data, ChecksumAlgorithm=algorithm)
    assert put[field] == DIGESTS[algorithm](data)
    s3.put_object(Bucket=bucket, Key="k", Body=data, **{field: DIGESTS[algorithm](data)})
    answer = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert answer["Body"].read() == data and answer[field] == DIGESTS[algorithm](data)
    assert field not in s3.head_object(Bucket=bucket, Key="k")
    wrong = DIGESTS[algorithm](data + b"!")
    refused(400, "BadDigest", s3.put_object, Bucket=bucket, Key="new", Body=data, **{field: wrong})
    refused(404, None, s3.head_object, Bucket=bucket, Key="new")


@pytest.mark.parametrize("algorithm,kind", [("SHA256", "COMPOSITE"), ("CRC32C", "FULL_OBJECT"), ("CRC64NVME", "FULL_OBJECT")])
def test_checksum_of_a_multipart_object(s3, bucket, noise, algorithm, kind):
    field = f"Checksum{algorithm}"
    pieces = [noise(PART_BYTES), noise(PART_BYTES + 1), noise(77)]
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm=algorithm, ChecksumType=kind)
    where = {"Bucket": bucket, "Key": "k", "UploadId": upload["UploadId"]}
    parts = []
    for number, piece in enumerate(pieces, 1):
        part = s3.upload_part(**where, PartNumber=number, Body=piece, ChecksumAlgorithm=algorithm)
        assert part[field] == DIGESTS[algorithm](piece)
        parts.append({"PartNumber": number, "ETag": part["ETag"], field: part[field]})
    if kind == "COMPOSITE":
        digests = b"".join(base64.b64decode(part[field]) for part in parts)
        expected = f"{DIGESTS[algorithm](digests)}-{len(parts)}"
    else:
        expected = DIGESTS[algorithm](b"".join(pieces))
    done = s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
    assert (done[field], done["ChecksumType"]) == (expected, kind)
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert (head[field], head["ChecksumType"]) == (expected, kind)
    assert body(s3, bucket, "k") == b"".join(pieces)


# Multipart.


def start(s3, bucket, key, **arguments):
    upload = s3.create_multipart_upload(Bucket=bucket, Key=key, **arguments)["UploadId"]
    return {"Bucket": bucket, "Key": key, "UploadId": upload}


def test_multipart_takes_the_last_of_each_part(s3, bucket, noise):
    where = start(s3, bucket, "k", ContentType="a/b", Metadata={"m": "1"}, Tagging="t=1")
    s3.upload_part(**where, PartNumber=1, Body=noise(PART_BYTES + 5))
    etags = {n: s3.upload_part(**where, PartNumber=n, Body=noise(size))["ETag"] for n, size in [(3, 100), (1, PART_BYTES), (2, PART_BYTES + 1)]}
    listed, marker = [], 0
    while True:
        page = s3.list_parts(**where, MaxParts=2, PartNumberMarker=marker)
        listed += [(part["PartNumber"], part["Size"], part["ETag"]) for part in page["Parts"]]
        if not page["IsTruncated"]:
            break
        marker = page["NextPartNumberMarker"]
    assert listed == [(1, PART_BYTES, etags[1]), (2, PART_BYTES + 1, etags[2]), (3, 100, etags[3])]
    parts = [{"PartNumber": number, "ETag": etags[number]} for number in (1, 2, 3)]
    refused(400, "InvalidPartOrder", s3.complete_multipart_upload, **where, MultipartUpload={"Parts": parts[::-1]})
    refused(400, "InvalidPart", s3.complete_multipart_upload, **where, MultipartUpload={"Parts": [{"PartNumber": 4, "ETag": etags[1]}]})
    refused(400, "InvalidPart", s3.complete_multipart_upload, **where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etags[2]}]})
    s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
    answer = s3.get_object(Bucket=bucket, Key="k")
    assert answer["Body"].read() == noise(PART_BYTES) + noise(PART_BYTES + 1) + noise(100)
    assert (answer["ContentType"], answer["Metadata"], answer["TagCount"]) == ("a/b", {"m": "1"}, 1)
    middle = s3.get_object(Bucket=bucket, Key="k", PartNumber=2)
    assert middle["Body"].read() == noise(PART_BYTES + 1) and middle["PartsCount"] == 3


def test_multipart_errors(s3, bucket):
    where = start(s3, bucket, "k")
    etag = s3.upload_part(**where, PartNumber=1, Body=b"small")["ETag"]
    more = s3.upload_part(**where, PartNumber=2, Body=b"small")["ETag"]
    parts = [{"PartNumber": 1, "ETag": etag}, {"PartNumber": 2, "ETag": more}]
    refused(400, "EntityTooSmall", s3.complete_multipart_upload, **where, MultipartUpload={"Parts": parts})
    refused(404, "NoSuchKey", s3.get_object, Bucket=bucket, Key="k")
    refused(400, "InvalidArgument", s3.upload_part, **where, PartNumber=10_001, Body=b"x")
    s3.abort_multipart_upload(**where)
    refused(404, "NoSuchUpload", s3.upload_part, **where, PartNumber=1, Body=b"x")
    refused(404, "NoSuchUpload", s3.complete_multipart_upload, **where, MultipartUpload={"Parts": parts})
    refused(404, "NoSuchUpload", s3.list_parts, **where)


def test_multipart_honours_conditions(s3, bucket):
    where = start(s3, bucket, "k")
    parts = {"Parts": [{"PartNumber": 1, "ETag": s3.upload_part(**where, PartNumber=1, Body=b"late")["ETag"]}]}
    s3.put_object(Bucket=bucket, Key="k", Body=b"first")
    refused(412, "PreconditionFailed", s3.complete_multipart_upload, **where, MultipartUpload=parts, IfNoneMatch="*")
    assert body(s3, bucket, "k") == b"first"


def test_uploads_are_listed_by_key(s3, bucket):
    for key in ("b", "a", "c/1", "c/2"):
        start(s3, bucket, key)
    assert [upload["Key"] for upload in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == ["a", "b", "c/1", "c/2"]
    assert [upload["Key"] for upload in s3.list_multipart_uploads(Bucket=bucket, Prefix="c")["Uploads"]] == ["c/1", "c/2"]


def test_a_part_copied_from_an_object(s3, bucket, noise):
    data = noise(2 * PART_BYTES)
    s3.put_object(Bucket=bucket, Key="source", Body=data)
    where, source = start(s3, bucket, "k"), {"Bucket": bucket, "Key": "source"}
    ranges = [(5, PART_BYTES + 4), (100, 199)]
    parts = []
    for number, (first, last) in enumerate(ranges, 1):
        copied = s3.upload_part_copy(**where, PartNumber=number, CopySource=source, CopySourceRange=f"bytes={first}-{last}")
        parts.append({"PartNumber": number, "ETag": copied["CopyPartResult"]["ETag"]})
    s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
    assert body(s3, bucket, "k") == b"".join(data[first : last + 1] for first, last in ranges)


# Copy, delete, tags.


def test_copy_directives_and_conditions(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="a", Body=b"data", Metadata={"m": "1"}, ContentType="a/b")["ETag"]
    source = {"Bucket": bucket, "Key": "a"}
    s3.copy_object(Bucket=bucket, Key="b", CopySource=source, MetadataDirective="REPLACE", Metadata={"n": "2"}, ContentType="c/d")
    head = s3.head_object(Bucket=bucket, Key="b")
    assert (head["Metadata"], head["ContentType"], head["ETag"]) == ({"n": "2"}, "c/d", etag)
    refused(400, "InvalidRequest", s3.copy_object, Bucket=bucket, Key="a", CopySource=source)
    refused(404, "NoSuchKey", s3.copy_object, Bucket=bucket, Key="c", CopySource={"Bucket": bucket, "Key": "absent"})
    refused(412, "PreconditionFailed", s3.copy_object, Bucket=bucket, Key="c", CopySource=source, CopySourceIfMatch='"other"')
    refused(412, "PreconditionFailed", s3.copy_object, Bucket=bucket, Key="c", CopySource=source, CopySourceIfNoneMatch=etag)


def test_delete_many(s3, bucket):
    keys = ["plain", "a b+c%20", "<&>\"'", "ünï"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    s3.put_object(Bucket=bucket, Key="kept", Body=b"x")
    done = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in [*keys, "absent"]]})
    assert sorted(entry["Key"] for entry in done["Deleted"]) == sorted([*keys, "absent"])
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["kept"]
    quiet = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "kept"}], "Quiet": True})
    assert "Deleted" not in quiet and "Errors" not in quiet
    refused(400, "MalformedXML", s3.delete_objects, Bucket=bucket, Delete={"Objects": [{"Key": str(n)} for n in range(1001)]})


def test_tags_of_an_object(s3, bucket):
    tags = lambda: {tag["Key"]: tag["Value"] for tag in s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]}
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="colour=red&empty=&a%20b=c%2Bd%20e")
    assert tags() == {"colour": "red", "empty": "", "a b": "c+d e"}
    assert s3.get_object(Bucket=bucket, Key="k")["TagCount"] == 3
    s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": [{"Key": "only", "Value": "ünï"}]})
    assert tags() == {"only": "ünï"}
    too_many = {"TagSet": [{"Key": str(n), "Value": ""} for n in range(11)]}
    refused(400, None, s3.put_object_tagging, Bucket=bucket, Key="k", Tagging=too_many)
    refused(400, "InvalidTag", s3.put_object_tagging, Bucket=bucket, Key="k", Tagging={"TagSet": [{"Key": "k" * 129, "Value": ""}]})
    s3.delete_object_tagging(Bucket=bucket, Key="k")
    assert tags() == {}
    refused(404, "NoSuchTagSet", s3.get_bucket_tagging, Bucket=bucket)


# Listing.


def test_every_page_size_lists_the_same(s3, bucket):
    keys = sorted((f"{folder}{name}" for folder in ("", "a/", "a/b/", "z/") for name in ("0", "a", "a b", "é", "~")), key=str.encode)
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    for operation in ("list_objects", "list_objects_v2"):
        for delimiter, prefix in (("", ""), ("/", ""), ("/", "a/"), ("b", "a"), ("/", "none")):
            expected = []
            for key in keys:
                if key.startswith(prefix):
                    at = key.find(delimiter, len(prefix)) if delimiter else -1
                    folded = key if at < 0 else key[: at + len(delimiter)]
                    if folded not in expected:
                        expected.append(folded)
            for size in (1, 2, 7, 1000):
                pages = s3.get_paginator(operation).paginate(
                    Bucket=bucket, Prefix=prefix, Delimiter=delimiter, PaginationConfig={"PageSize": size}
                )
                found = []
                for page in pages:
                    rows = [row["Key"] for row in page.get("Contents", [])] + [row["Prefix"] for row in page.get("CommonPrefixes", [])]
                    assert len(rows) <= size
                    found += sorted(rows, key=str.encode)
                assert found == expected, (operation, delimiter, prefix, size)


def test_listing_starts_where_asked(s3, bucket):
    for key in ("a", "b", "c"):
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode() * 3)
    v2 = s3.list_objects_v2(Bucket=bucket, StartAfter="a", FetchOwner=True)
    assert [(row["Key"], row["Size"]) for row in v2["Contents"]] == [("b", 3), ("c", 3)]
    assert v2["KeyCount"] == 2 and v2["Contents"][0]["Owner"]["ID"]
    v1 = s3.list_objects(Bucket=bucket, Marker="b", MaxKeys=5)
    assert [row["Key"] for row in v1["Contents"]] == ["c"] and v1["MaxKeys"] == 5
    nothing = s3.list_objects_v2(Bucket=bucket, MaxKeys=0)
    assert nothing["KeyCount"] == 0 and not nothing["IsTruncated"]


# CORS.


def test_cors(server, s3, bucket):
    refused(404, "NoSuchCORSConfiguration", s3.get_bucket_cors, Bucket=bucket)
    rule = {
        "AllowedMethods": ["GET", "PUT"],
        "AllowedOrigins": ["https://*.example.org"],
        "AllowedHeaders": ["x-amz-*"],
        "ExposeHeaders": ["ETag"],
        "MaxAgeSeconds": 60,
    }
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
    assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"] == [rule]
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
    ours, theirs = "https://www.example.org", "https://example.com"

    def preflight(origin, method="GET", headers="x-amz-date"):
        return requests.options(
            f"{server.endpoint}/{bucket}/k",
            headers={"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers},
        )

    answer = preflight(ours)
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == ours
    assert "GET" in answer.headers["Access-Control-Allow-Methods"]
    assert answer.headers["Access-Control-Allow-Headers"].lower() == "x-amz-date"
    assert answer.headers["Access-Control-Max-Age"] == "60"
    assert preflight(theirs).status_code == 403
    assert preflight(ours, method="DELETE").status_code == 403
    assert preflight(ours, headers="x-other").status_code == 403
    answer = requests.get(url, headers={"Origin": ours})
    assert answer.status_code == 200 and answer.headers["Access-Control-Allow-Origin"] == ours
    assert answer.headers["Access-Control-Expose-Headers"] == "ETag"
    assert "Access-Control-Allow-Origin" not in requests.get(url, headers={"Origin": theirs}).headers
    s3.delete_bucket_cors(Bucket=bucket)
    assert preflight(ours).status_code == 403
