"""The API as a Cloud Run function, and a tick for events: `gcloud functions deploy … --entry-point http`, or `event`."""

from sublet_functions.google import event, http

__all__ = ["event", "http"]
