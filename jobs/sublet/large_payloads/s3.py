"""Large payloads as objects in S3, or a service with the same API, by boto3 (the extra `aws`)."""

import importlib.util
import threading
import time
from collections.abc import Sequence
from typing import Any

from sublet.errors import Invalid
from sublet.source_tree import install_command

CONNECT, READ = 5.0, 30.0
"""Time limits in seconds: to connect, and for each answer. boto3 tries a call up to three times."""


class S3:
    """Objects in a bucket that exists, under an optional prefix. boto3 finds region and credentials.

    `endpoint_url` names another service than AWS; it is not used if `client`, a ready boto3 client, is given. Raises
    Invalid for a bucket that is empty or has a `/` and, without `client`, if boto3 is missing.
    """

    def __init__(
        self, bucket: str, prefix: str = "", *, endpoint_url: str | None = None, client: Any = None
    ) -> None:
        if not bucket or "/" in bucket:
            raise Invalid(
                f"large_payloads: bucket {bucket[:80]!r}: use the bucket's name alone, such as my-bucket"
            )
        if client is None and not importlib.util.find_spec("boto3"):
            raise Invalid(f"large payloads in S3 need boto3: {install_command('aws')}")
        self.bucket, self.prefix = bucket, f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.address = f"s3://{bucket}/{self.prefix}".rstrip("/")
        self._endpoint_url, self._client = endpoint_url, client
        self._making = threading.Lock()

    def __repr__(self) -> str:
        return f"S3({self.bucket!r}, {self.prefix!r})"

    def put(self, name: str, data: bytes) -> None:
        """Store an object; it replaces one of this name."""
        self._made().put_object(Bucket=self.bucket, Key=self.prefix + name, Body=data)

    def get(self, name: str) -> bytes:
        """Return an object's bytes. Raises KeyError if it does not exist."""
        client = self._made()
        try:
            body: bytes = client.get_object(Bucket=self.bucket, Key=self.prefix + name)["Body"].read()
        except client.exceptions.NoSuchKey:
            raise KeyError(name) from None
        return body

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; ignore missing ones. Raises OSError if S3 keeps one of them."""
        keys = [{"Key": self.prefix + name} for name in names]
        done = self._made().delete_objects(Bucket=self.bucket, Delete={"Objects": keys, "Quiet": True})
        if errors := done.get("Errors"):
            raise OSError(f"S3 did not delete {len(errors)} objects: {errors[0].get('Code')}")

    def scan(self, prefix: str, after: str, limit: int) -> Sequence[tuple[str, float]]:
        """Return up to `limit` names that begin with `prefix` and sort behind `after`, in order, each with its
        age in seconds.
        """
        found: list[tuple[str, float]] = []
        start = self.prefix + after
        while len(found) < limit:
            page = self._made().list_objects_v2(
                Bucket=self.bucket,
                Prefix=self.prefix + prefix,
                StartAfter=start,
                MaxKeys=min(1000, limit - len(found)),
            )
            for item in page.get("Contents", ()):
                start = item["Key"]
                found.append(
                    (start.removeprefix(self.prefix), time.time() - item["LastModified"].timestamp())
                )
            if not page.get("IsTruncated"):
                break
        return found

    def _made(self) -> Any:
        with self._making:
            if self._client is None:
                self._client = self._new_client()
        return self._client

    def _new_client(self) -> Any:
        import boto3
        from botocore.config import Config

        how = Config(connect_timeout=CONNECT, read_timeout=READ, retries={"total_max_attempts": 3})
        return boto3.session.Session().client("s3", endpoint_url=self._endpoint_url, config=how)
