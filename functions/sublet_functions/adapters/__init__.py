"""Between the API and the interfaces of platforms: ASGI, WSGI, Lambda, CloudEvents."""
