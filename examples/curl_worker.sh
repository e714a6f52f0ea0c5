#!/usr/bin/env bash
# A complete worker over HTTP with nothing but curl, bash 5 and coreutils. Copy it, and put your own tasks in.
# It runs jobs, one at a time, until SIGTERM, and gives back what it has not finished; for more at a time start more of these.
# Settings: SUBLET_SOURCE (the API's URL), SUBLET_TOKEN (its role: work), SUBLET_QUEUES (commas between), SUBLET_LEASE (seconds).
export LC_ALL=C; umask 077; tmp=$(mktemp -d); trap '[[ $BASHPID != "$$" ]] || rm -rf "$tmp"' EXIT
url=${SUBLET_SOURCE:-http://127.0.0.1:8377} lease=${SUBLET_LEASE:-30} stop='' job='' asking='' claim=''
name=curl-$$-$RANDOM queues=\"${SUBLET_QUEUES:-default}\"; queues=${queues//,/\",\"}
printf '%s\n' 'Content-Type: application/json' ${SUBLET_TOKEN:+"Authorization: Bearer $SUBLET_TOKEN"} >"$tmp/headers"
# An answer of /jobs/claim for one job, as the API writes it: id, task, payload, token, timeout.
leased='^\{"jobs":\[\{"id":"([^"]+)","task":"([^"]+)","queue":"[^"]+","payload":(.*),"attempt":[0-9]+,"max_attempts":[0-9]+,"tries_left":-?[0-9]+,"token":"([^"]+)",'
leased+='"lease_expires_at":"[^"]+","timeout":([0-9.]+|null),"recovered":"[^"]*"(,.*)?\}\]\}$'

# The tasks: each reads its payload (JSON) on stdin, writes its result (JSON) to stdout, and says on stderr why it fails.
task_echo() { cat; }
task_sleep() { sleep "$(sed -n 's/.*"seconds":\([0-9.]*\).*/\1/p')" && echo null; }
task_boom() { echo "out of \"luck\"" >&2; return 1; }

# Secrets are in files and on stdin: command lines can be seen by others. Each request is safe to send again, the very same.
ask() { local curl # PATH FILE [waits], body on stdin: the answer goes to the file; $code is its status, 000 for none
  : >"$2.code"
  curl -s --max-time 30 --retry 5 --retry-connrefused -H @"$tmp/headers" --data-binary @- -o "$2" -w '%{http_code}' "$url$1" \
    <&0 >"$2.code" & curl=$! asking=${3:+$!}
  [[ $stop && $3 ]] && kill "$curl"
  while wait "$curl"; kill -0 "$curl"; do :; done 2>/dev/null       # a signal ends a wait before its time
  asking='' code=$(tail -c 3 "$2.code")
}
tell() { ask "/jobs/$id/$1" "$tmp/told" <<<"{\"token\":\"$token\"${2:+,$2}}"; } # VERB [FIELDS]
beat() { local begun=$SECONDS; trap - TERM # extend the lease, watch the time; what ends the job early goes to $tmp/heard
  while sleep "$((lease < 15 ? (lease + 2) / 3 : 5))"; do
    if [[ $limit != null ]] && ((SECONDS - begun >= ${limit%.*})); then code=timed_out; else tell heartbeat "\"lease\":$lease"; fi
    [[ $code == timed_out || $code == 40[49] || $(<"$tmp/told") == *'"cancel_requested":true'* ]] || continue
    echo "$code" >"$tmp/heard"; kill -KILL -- "-$job" 2>/dev/null; return
  done
}
perform() { # ID TASK PAYLOAD TOKEN LIMIT: one job, from the claim's answer to its ending
  local id=$1 task=$2 token=$4 limit=$5 beater why
  [[ $stop ]] && { tell release '"reason":"the worker stops"'; return; }
  declare -F "task_$task" >/dev/null || { tell release '"code":"unknown_task","reason":"no such task"'; return; }
  : >"$tmp/heard"; set -m                                           # each in a process group: to be ended with all its children
  "task_$task" <<<"$3" >"$tmp/result" 2>"$tmp/words" & job=$!
  beat & beater=$!
  set +m; [[ $stop ]] && kill -KILL -- "-$job"
  while wait "$job"; code=$?; kill -0 "$job"; do :; done 2>/dev/null
  job=''; kill -KILL -- "-$beater" 2>/dev/null; wait "$beater" 2>/dev/null
  why=$(tr -cd ' -~' <"$tmp/words" | tail -c 500 | sed 's/[\\"]/\\&/g')
  case $(<"$tmp/heard")$stop$code in
    40[49]*) ;;                                                     # it is another's by now, or nobody's: not a word
    200*) tell fail '"code":"cancelled","again":false' ;;
    timed_out*) tell fail '"code":"timed_out"' ;;
    0 | yes0) tell complete "\"result\":$(<"$tmp/result")"; [[ $code == 4[02]? ]] && tell fail '"code":"no_json"' ;;
    yes*) tell release '"reason":"the worker stops"' ;;
    *) tell fail "\"code\":\"exit_$code\",\"message\":\"$why\"" ;;
  esac
}
claim() { # FIELDS [waits]
  ask /jobs/claim "$tmp/claimed" $2 <<<"{\"queues\":[$queues],\"worker\":\"$name\",\"lease\":$lease,\"claim_id\":\"$claim\",$1}"
}

trap 'stop=yes; kill $asking 2>/dev/null; [[ $job ]] && kill -KILL -- "-$job"' TERM INT
while [[ ! $stop ]]; do
  claim=${claim:-$(head -c 18 /dev/urandom | base64 | tr '+/' '_-')}   # the same until it is answered: no job is lost
  claim '"wait":20' waits
  [[ $stop && $code != 20? ]] && claim '"n":0'                      # was there an answer on its way? This takes no more
  case $code in
    200) [[ $(<"$tmp/claimed") =~ $leased ]] && perform "${BASH_REMATCH[@]:1:5}"; claim='' ;;
    204) claim='' ;;
    4*) cat "$tmp/claimed" >&2; exit 1 ;;
    *) [[ $stop ]] || sleep 1 ;;
  esac
done
