#!/bin/sh
# Drive a rig through `nestbed serve`: sh client.sh http://127.0.0.1:8765 (NESTBED_TOKEN, if the server needs one)
call() {  # method, path, body; asked again where no answer came, or 503: a step counts once
  curl --silent --show-error --fail-with-body --retry 60 --retry-connrefused --request "$1" "$server$2" ${3:+--data "$3"} \
    --header 'Content-Type: application/json' --header "Authorization: Bearer ${NESTBED_TOKEN:-}"
}
server=$1
call POST /sessions '{"id": "curl", "system": "linear_pendulum", "policy": "chirp", "horizon": 3, "seed": 0}' > /dev/null
while now=$(call GET /sessions/curl/design) || exit 1; case $now in *'"done":null'*) true ;; *) false ;; esac; do
  echo "$now"
  step=$(echo "$now" | sed 's/.*"step":\([0-9]*\).*/\1/')
  # here the rig applies the design and is measured
  call POST /sessions/curl/measurements "{\"step\": $step, \"y\": {\"angle\": 0.0, \"velocity\": 0.0}}" || exit 1
  echo
done
call GET /sessions/curl/posterior | cut -c 1-200
