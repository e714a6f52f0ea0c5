"""The HTTP server of `sublet serve`."""
