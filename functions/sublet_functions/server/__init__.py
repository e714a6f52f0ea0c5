"""The aiohttp server."""
