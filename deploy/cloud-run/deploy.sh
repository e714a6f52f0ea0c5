#!/bin/sh
# The API, workers and the clock on Cloud Run: once, and again after every change. What is there already is left as it is.
#   PROJECT=my-project REGION=europe-west1 SUBLET_REDIS_URL=rediss://USER:PASSWORD@HOST:6379 ./deploy.sh
# WORKER_REDIS_URL is another URL for workers, whose tasks can read it: of a user with the role work (`sublet acl`).
set -eu
cd "$(dirname "$0")"
: "${PROJECT:?the id of your Google Cloud project}" "${REGION:?such as europe-west1}"
export CLOUDSDK_CORE_PROJECT="$PROJECT" CLOUDSDK_CORE_DISABLE_PROMPTS=1
account="sublet@$PROJECT.iam.gserviceaccount.com"
worker="sublet-worker@$PROJECT.iam.gserviceaccount.com"
image="$REGION-docker.pkg.dev/$PROJECT/sublet/tasks:$(date -u +%Y%m%d-%H%M%S)"
umask 077
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

there() { gcloud "$@" > "$made/said" 2>&1; }
secret() { # name, value for a secret that does not exist, and the accounts that may read it
  if ! there secrets describe "$1"; then
    : "${2:?$1 is not there yet: set SUBLET_REDIS_URL}"
    printf %s "$2" | gcloud secrets create "$1" --replication-policy automatic --data-file -
  fi
  name=$1
  shift 2
  for reader; do
    tries=0 # a new account may take up to a minute to be visible
    until there secrets add-iam-policy-binding "$name" --member "serviceAccount:$reader" --role roles/secretmanager.secretAccessor; do
      tries=$((tries + 1))
      if [ "$tries" -ge 12 ]; then
        cat "$made/said" >&2
        exit 1
      fi
      sleep 5
    done
  done
}
latest() { gcloud secrets versions access latest --secret "$1" > "$made/$1" && cat "$made/$1"; }
renew() { # name, and the value that its latest version should have
  if [ -n "$2" ] && [ "$(latest "$1")" != "$2" ]; then
    printf %s "$2" | gcloud secrets versions add "$1" --data-file -
    echo "another URL than before: the secret $1 has a new version"
  fi
}

# Each on a line of its own: a failure within another command's words would be nobody's
new_me=$(openssl rand -hex 24)
new_clock=$(openssl rand -hex 24)
new_worker=$(openssl rand -hex 24)
new_signing=$(openssl rand -base64 32)
gcloud services enable iam.googleapis.com run.googleapis.com cloudbuild.googleapis.com artifactregistry.googleapis.com secretmanager.googleapis.com cloudscheduler.googleapis.com
there artifacts repositories describe sublet --location "$REGION" || gcloud artifacts repositories create sublet --location "$REGION" --repository-format docker
there iam service-accounts describe "$account" || gcloud iam service-accounts create sublet
there iam service-accounts describe "$worker" || gcloud iam service-accounts create sublet-worker
secret sublet-redis-url "${SUBLET_REDIS_URL:-}" "$account"
secret sublet-tokens "me:admin:$new_me clock:tick:$new_clock" "$account"
# What workers get, and with them their tasks: nothing of the API, but the secret by which both know calls
secret sublet-worker-redis-url "${WORKER_REDIS_URL:-${SUBLET_REDIS_URL:-}}" "$worker"
secret sublet-worker-tokens "worker:work:$new_worker" "$worker"
secret sublet-signing "whsec_$new_signing" "$account" "$worker"
workers_url=${WORKER_REDIS_URL:-}
if [ -z "$workers_url" ] && [ "$(latest sublet-worker-redis-url)" = "$(latest sublet-redis-url)" ]; then
  workers_url=${SUBLET_REDIS_URL:-}
fi
renew sublet-redis-url "${SUBLET_REDIS_URL:-}"
renew sublet-worker-redis-url "$workers_url"

gcloud builds submit --tag "$image" .
for name in service worker; do
  sed -e "s|IMAGE|$image|" -e "s|PROJECT|$PROJECT|" "$name.yaml" > "$made/$name.yaml"
  gcloud run services replace "$made/$name.yaml" --region "$REGION"
done
api=$(gcloud run services describe sublet --region "$REGION" --format "value(status.url)")
work=$(gcloud run services describe sublet-worker --region "$REGION" --format "value(status.url)")
gcloud secrets versions access latest --secret sublet-tokens | tr -s "[:space:]" "\n" > "$made/tokens"
me=$(sed -n "s/^me:[a-z,]*://p" "$made/tokens")
clock=$(sed -n "s/^clock:[a-z,]*://p" "$made/tokens")
: "${me:?there is no token of me in the secret sublet-tokens}" "${clock:?there is no token of clock in the secret sublet-tokens}"

# Whoever submits to this queue, or ticks, calls workers
printf "Authorization: Bearer %s\n" "$me" > "$made/header" # not in a command line, which all users of this machine can read
curl -fs -o "$made/pool" -H @"$made/header" "$api/pools/default" ||
  curl -fsS -X PUT -H @"$made/header" -H "Content-Type: application/json" "$api/pools/default" \
    -d '{"queues": ["default"], "invoker": "http", "target": "'"$work"'/work", "max": 10}'
# The clock: a tick each minute. With /tick?for=50&every=5 nothing is late for more than 5 s, and an instance is up, and paid for, all
# the time: then set run.googleapis.com/cpu-throttling in service.yaml to "false", too
there scheduler jobs describe sublet-tick --location "$REGION" || gcloud scheduler jobs create http sublet-tick --location "$REGION" \
  --schedule "* * * * *" --uri "$api/tick" --http-method POST --headers "Authorization=Bearer $clock" \
  --attempt-deadline 60s --max-retry-attempts 0
echo "the API is at $api; your token is in the secret sublet-tokens"
