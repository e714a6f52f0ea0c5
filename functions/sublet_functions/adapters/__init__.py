"""Parts that the entry points for other servers and platforms share (`asgi`, `wsgi`, `aws`, `serve`)."""
