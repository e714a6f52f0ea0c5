"""Store large payloads and results outside Redis (`docs/guides/large-payloads.md`)."""

from sublet.large_payloads.backend import LargePayloads
from sublet.large_payloads.files import Files
from sublet.large_payloads.s3 import S3

__all__ = ["S3", "Files", "LargePayloads"]
