#!/usr/bin/env bash
# A complete producer and worker with nothing but redis-cli 7, bash 5 and coreutils. Copy it, and put your own tasks in.
#   worker.sh submit TASK JSON     store a job, print its id
#   worker.sh work                 run jobs, one at a time, until SIGTERM; for more at a time start more of these
# Settings: SUBLET_REDIS_URL, _NAMESPACE (of one partition), _QUEUES (commas between), _LEASE (whole seconds), _LUA (the scripts).
export LC_ALL=C                          # a character is a byte
url=${SUBLET_REDIS_URL:-redis://127.0.0.1:6379} base="{${SUBLET_NAMESPACE:-sublet}:0}" lease=${SUBLET_LEASE:-30}000
lua=${SUBLET_LUA:-$(dirname "$0")/../lua} tmp=$(mktemp -d) stop='' job='' every=$((lease < 15000 ? lease / 3 : 5000))  # ms
IFS=, read -ra queues <<<"${SUBLET_QUEUES:-default}"; trap 'rm -rf "$tmp"' EXIT

# The tasks: each reads its payload (JSON) on stdin, writes its result (JSON) to stdout, and says on stderr why it fails.
task_echo() { cat; }
task_sleep() { sleep "$(sed -n 's/.*"seconds" *: *\([0-9.]*\).*/\1/p')" && echo null; }
task_boom() { sed -n 's/.*"message" *: *"\([^"]*\)".*/\1/p' >&2; return 1; }

text() (cd "$lua" && cat $(sed -n 's/^-- LIBS  //p' "$1.lua") "$1.lua")
random() { head -c 18 /dev/urandom | base64 | tr '+/' '_-'; }
seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }        # of ms
# The parts of a reply are set apart by a byte that is in no JSON text. What has not answered in time is asked again.
redis() { timeout --foreground "$(seconds "${patience:-$every}")" redis-cli -u "$url" -e --raw -d $'\036' -D $'\036' "$@"; }

call() { local out=$tmp/$BASHPID words # VERB [ARGUMENT…]: run a script; $reply is its reply. stdin takes a large last argument
  words=(EVALSHA "$(text "$1" | sha1sum | head -c 40)" 1 "$base" "${@:2}")
  for _ in {1..20}; do                   # each verb is safe to repeat, so what was not answered is sent again, the same
    printf %s "${words[-1]}" | redis -x "${words[@]::${#words[@]}-1}" >"$out" 2>"$out.err" &&
      mapfile -td $'\036' reply <"$out" && return
    case $(<"$out.err") in
      NOSCRIPT*) text "$1" | redis -x SCRIPT LOAD >"$out" ;;
      NO_NAMESPACE*) call init 1 ;;
      WRONG_LAYOUT* | TOO_MANY* | INVALID* | OOM*) break ;;
      *) sleep 0.3 ;;
    esac
  done
  cat "$out.err" >&2; return 1
}
beat() { local begun=$EPOCHREALTIME # ID TOKEN MS: extend the job's lease, watch its time; what ends it early goes to $tmp/heard
  while sleep "$(seconds "$every")"; do
    if [[ $3 != none ]] && (((${EPOCHREALTIME/./} - ${begun/./}) / 1000 >= $3)); then reply=timed_out
    else call heartbeat "$lease" "$1" "$2" '' || continue; fi
    [[ $reply == [0-9]* ]] || { echo "$reply" >"$tmp/heard"; kill -KILL -- "-$job"; return; }
  done
}
perform() { # TOKEN ID ATTEMPT END SPEC PAYLOAD HISTORY: one job, from the claim's reply to its ending
  local token=$1 id=$2 spec=$5 payload=$6 task rules limit=300000 beater code result
  read -r _ task _ rules <<<"${spec%%$'\n'*}"                      # queue task submitted_at [rule=value …]
  [[ $spec == *$'\n'* ]] && payload=${spec#*$'\n'}                 # over 1 KiB it is a part of its own
  [[ " $rules" =~ " timeout="([^ ]+) ]] && limit=${BASH_REMATCH[1]}
  declare -F "task_$task" >/dev/null || { call release "$id" "$token" 0 unknown_task "$task"; return; }
  printf %s "$payload" >"$tmp/payload"; : >"$tmp/heard"
  set -m                                                           # each in a process group: to be ended with all its children
  "task_$task" <"$tmp/payload" >"$tmp/result" 2>"$tmp/words" & job=$!
  beat "$id" "$token" "$limit" & beater=$!
  set +m; [[ $stop ]] && kill -KILL -- "-$job"
  while wait "$job"; code=$?; kill -0 "$job"; do :; done 2>/dev/null   # a signal ends a wait before its time
  job=''; kill -KILL -- "-$beater"; wait "$beater" 2>/dev/null
  case $(<"$tmp/heard")$stop$code in
    LEASE_LOST* | NOT_FOUND*) ;;                                   # it is another's by now, or nobody's: not a word
    CANCEL_REQUESTED*) call fail "$id" "$token" cancelled 'stopped, as was asked' '' no ;;
    timed_out*) call fail "$id" "$token" timed_out "not done after $limit ms" '' yes ;;
    0 | yes0) result=$(<"$tmp/result"); call complete "$id" "$token" "${result:-null}" ;;
    yes*) call release "$id" "$token" 0 released 'the worker stops' ;;
    *) call fail "$id" "$token" "exit_$code" "$(tail -c 1000 "$tmp/words")" '' yes ;;
  esac
}
work() {
  local name=sh-$$-$RANDOM-$(uname -n | tr -cd 'A-Za-z0-9_.-' | head -c 64)
  trap 'stop=yes; [[ $job ]] && kill -KILL -- "-$job"' TERM INT
  while [[ ! $stop ]]; do
    call claim "$(random)" "$name" "$lease" 1 "${queues[@]}" || { sleep 1; continue; }
    if ((${#reply[@]} > 3)); then perform "${reply[0]}" "${reply[@]:3}"
    elif ((reply[1])); then patience=9000 redis BLPOP "${queues[@]/#/"$base:wake:"}" "$(seconds "${reply[1]}")" &>"$tmp/none"; fi
  done
}
case ${1-}${2+ TASK} in
  'submit TASK') id=0-$(random)                 # made before the first try: sent again, it is the same job
          call submit "$id" "${queues[0]}" "$2" '' "${3:-"{}"}" || exit 1
          [[ $reply == created || $reply == exists* ]] && echo "$id" || { echo "$reply" >&2; exit 1; } ;;
  work) work; exit 0 ;; *) sed -n '3,4s/^# *//p' "$0" >&2; exit 2 ;;
esac
