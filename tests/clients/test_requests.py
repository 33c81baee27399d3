"""Requests that no well-behaved client sends, signed by hand: the server must name what is wrong and keep nothing."""

import base64
import datetime
import hashlib
import http.client
import socket
import urllib.parse
import xml.etree.ElementTree as ElementTree
import zlib

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import botocore.exceptions
import pytest
import requests

UNSIGNED = "UNSIGNED-PAYLOAD"
STREAMING = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


class At(botocore.auth.S3SigV4Auth):
    """Signs for a time of our choice and a payload hash of our choice."""

    def __init__(self, server, minutes=0, payload=UNSIGNED, access_key=None, secret_key=None):
        keys = botocore.credentials.Credentials(access_key or server.access_key, secret_key or server.secret_key)
        super().__init__(keys, "s3", "us-east-1")
        self.minutes, self.hash = minutes, payload

    def add_auth(self, request):
        now = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=self.minutes)
        request.context["timestamp"] = now.strftime("%Y%m%dT%H%M%SZ")
        self._modify_request_before_signing(request)
        canonical = self.canonical_request(request)
        signature = self.signature(self.string_to_sign(request, canonical), request)
        self._inject_signature_to_request(request, signature)

    def payload(self, request):
        return self.hash


def signed(server, method, path, headers=None, data=b"", **options):
    """The headers of a signed request; `path` is percent-encoded."""
    request = botocore.awsrequest.AWSRequest(method, server.endpoint + path, headers=dict(headers or {}), data=data)
    At(server, **options).add_auth(request)
    return {name: value for name, value in request.headers.items()}


def send(server, method, path, headers=None, data=b"", **options):
    return requests.request(method, server.endpoint + path, data=data, headers=signed(server, method, path, headers, data, **options))


def error(answer, status, code):
    """Checks an error answer all round: status, type, code, message, and a request id that a log can be searched for."""
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/xml"
    root = ElementTree.fromstring(answer.content)
    assert root.tag == "Error" and root.findtext("Code") == code, answer.text
    assert root.findtext("Message")
    assert root.findtext("RequestId") and root.findtext("RequestId") == answer.headers["x-amz-request-id"]
    return root


def absent(s3, bucket, key):
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        s3.head_object(Bucket=bucket, Key=key)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


def raw(server, data, end=False):
    """Sends bytes as they are, then with `end` no more; returns the status of the answer, or None if there is none."""
    answer = raw_answer(server, data, end)
    return answer and answer.status


def raw_answer(server, data, end=False):
    where = urllib.parse.urlsplit(server.endpoint)
    with socket.create_connection((where.hostname, where.port), timeout=10) as connection:
        try:
            connection.sendall(data)
        except ConnectionError:
            pass  # Refused before all of it was read; the answer is there.
        if end:
            connection.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(connection)
        try:
            answer.begin()
        except (http.client.HTTPException, ConnectionError):
            return None
        return answer


def head_of(method, path, server, headers):
    lines = [f"{method} {path} HTTP/1.1", f"Host: {urllib.parse.urlsplit(server.endpoint).netloc}"]
    return ("\r\n".join(lines + [f"{name}: {value}" for name, value in headers.items()]) + "\r\n\r\n").encode("latin-1")


def test_errors_are_xml_with_a_request_id(server, bucket):
    error(send(server, "GET", f"/{bucket}/absent"), 404, "NoSuchKey")
    error(send(server, "GET", f"/{bucket}-absent/key"), 404, "NoSuchBucket")
    error(send(server, "GET", f"/{bucket}?list-type=2&max-keys=many"), 400, "InvalidArgument")
    broken = b"<Delete><Object>"
    md5 = base64.b64encode(hashlib.md5(broken).digest()).decode()
    error(send(server, "POST", f"/{bucket}?delete", {"Content-MD5": md5}, broken), 400, "MalformedXML")


def test_who_is_not_known_is_refused(server, bucket):
    error(requests.get(f"{server.endpoint}/{bucket}"), 403, "AccessDenied")
    error(send(server, "GET", f"/{bucket}", access_key="AKIDUNKNOWN"), 403, "InvalidAccessKeyId")
    error(send(server, "GET", f"/{bucket}", secret_key="wrong"), 403, "SignatureDoesNotMatch")


@pytest.mark.parametrize("minutes", [-40, 40])
def test_a_clock_far_off_is_refused(server, s3, bucket, minutes):
    error(send(server, "PUT", f"/{bucket}/k", data=b"x", minutes=minutes), 403, "RequestTimeTooSkewed")
    absent(s3, bucket, "k")


def test_a_clock_a_little_off_is_accepted(server, bucket):
    assert send(server, "PUT", f"/{bucket}/k", data=b"x", minutes=-10).status_code == 200


def test_a_signed_hash_must_match_the_body(server, s3, bucket):
    answer = send(server, "PUT", f"/{bucket}/k", data=b"other", payload=hashlib.sha256(b"body").hexdigest())
    assert answer.status_code == 400
    absent(s3, bucket, "k")


@pytest.mark.parametrize("minutes,expires,good", [(0, 60, True), (-5, 600, True), (-5, 240, False), (0, 604_801, False)])
def test_a_presigned_url_ends(server, s3, bucket, monkeypatch, minutes, expires, good):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    then = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=minutes)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: then)
    keys = botocore.credentials.Credentials(server.access_key, server.secret_key)
    request = botocore.awsrequest.AWSRequest("GET", f"{server.endpoint}/{bucket}/k")
    botocore.auth.S3SigV4QueryAuth(keys, "s3", "us-east-1", expires=expires).add_auth(request)
    answer = requests.get(request.url)
    if good:
        assert answer.content == b"x"
    else:
        error(answer, 403, "AccessDenied")


def test_a_header_of_amazons_must_be_signed(server, s3, bucket):
    headers = {**signed(server, "PUT", f"/{bucket}/k", data=b"x"), "x-amz-acl": "public-read"}
    error(requests.put(f"{server.endpoint}/{bucket}/k", data=b"x", headers=headers), 403, "AccessDenied")
    url = s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "k"})
    for name, value in {"x-amz-acl": "public-read", "x-amz-copy-source": f"/{bucket}/other"}.items():
        error(requests.put(url, data=b"x", headers={name: value}), 403, "AccessDenied")
    absent(s3, bucket, "k")
    assert requests.put(url, data=b"x", headers={"x-amz-content-sha256": UNSIGNED}).status_code == 200


def test_a_body_cut_short_stores_nothing(server, s3, bucket):
    path = f"/{bucket}/k"
    headers = signed(server, "PUT", path, {"Content-Length": "1000"})
    assert raw(server, head_of("PUT", path, server, headers) + b"x" * 600, end=True) != 200
    absent(s3, bucket, "k")


def test_a_refusal_before_the_body_ends_the_connection(server, s3, bucket):
    # The client does not send the body then: left open, the connection would take the next request for it.
    s3.put_object(Bucket=bucket, Key="k", Body=b"first")
    path = f"/{bucket}/k"
    headers = signed(server, "PUT", path, {"Content-Length": "1000", "Expect": "100-continue", "If-None-Match": "*"})
    answer = raw_answer(server, head_of("PUT", path, server, headers))
    assert answer.status == 412
    assert answer.getheader("Connection") == "close"


def test_a_body_is_asked_for_when_it_is_wanted(server, s3, bucket):
    path = f"/{bucket}/k"
    headers = signed(server, "PUT", path, {"Content-Length": "4", "Expect": "100-continue"})
    where = urllib.parse.urlsplit(server.endpoint)
    with socket.create_connection((where.hostname, where.port), timeout=10) as connection:
        connection.sendall(head_of("PUT", path, server, headers))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"body")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"body"


def chunked(data, trailer=b"", decoded=None):
    """A body in the encoding that the SDKs use for trailing checksums, and its headers."""
    coded = b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(data), data, trailer) if data else b"0\r\n%s\r\n" % trailer
    headers = {
        "Content-Encoding": "aws-chunked",
        "Content-Length": str(len(coded)),
        "x-amz-decoded-content-length": str(len(data) if decoded is None else decoded),
        "x-amz-trailer": "x-amz-checksum-crc32",
    }
    return coded, headers


def trailer(data):
    return b"x-amz-checksum-crc32:" + base64.b64encode(zlib.crc32(data).to_bytes(4, "big")) + b"\r\n"


def put_chunked(server, path, coded, headers):
    headers = signed(server, "PUT", path, headers, payload=STREAMING)
    return raw(server, head_of("PUT", path, server, headers) + coded)


def test_a_trailing_checksum_is_checked(server, s3, bucket, noise):
    data, path = noise(200_000), f"/{bucket}/k"
    assert put_chunked(server, path, *chunked(data, trailer(data))) == 200
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == data
    s3.delete_object(Bucket=bucket, Key="k")
    assert put_chunked(server, path, *chunked(data, trailer(b"other"))) == 400
    absent(s3, bucket, "k")


def test_a_promised_trailer_must_come(server, s3, bucket):
    assert put_chunked(server, f"/{bucket}/k", *chunked(b"data")) == 400
    absent(s3, bucket, "k")


def test_a_promised_length_must_be_kept(server, s3, bucket):
    assert put_chunked(server, f"/{bucket}/k", *chunked(b"x" * 1000, trailer(b"x" * 1000), decoded=5000)) == 400
    absent(s3, bucket, "k")
    assert put_chunked(server, f"/{bucket}/k", *chunked(b"x" * 1000, trailer(b"x" * 1000), decoded=500)) == 400
    absent(s3, bucket, "k")


def test_a_head_beyond_reason_is_refused(server, bucket):
    path = f"/{bucket}/k"
    headers = {f"x-filler-{number}": "v" * 4000 for number in range(200)}
    assert raw(server, head_of("GET", path, server, headers)) in (None, 400, 431)
    assert send(server, "GET", f"/{bucket}").status_code == 200


def test_what_is_not_http_is_refused(server, bucket):
    assert raw(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", end=True) in (None, 400)
    assert send(server, "GET", f"/{bucket}").status_code == 200
