"""The HTTP server of `sublet serve`, on aiohttp's low-level server."""
