"""Keep large payloads and results outside of Redis: in files, S3, or a backend of your own."""

from sublet.large_payloads.backend import LargePayloads
from sublet.large_payloads.files import Files
from sublet.large_payloads.s3 import S3

__all__ = ["S3", "Files", "LargePayloads"]
