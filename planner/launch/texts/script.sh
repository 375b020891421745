#!/usr/bin/env bash
{{heading}}
set -euo pipefail

%if has_files
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
%end

{{environment}}

{{asked}}
{{links}}

%if several_nodes
export NUM_NODES={{num_nodes}}
# The number of this node, and the address of the first, which all can reach.
%if by_rank
export NODE_RANK=0
%else
: "${NODE_RANK:?number of this node, from 0}"
%end
: "${MASTER_ADDR:?address of the first node}"
: "${MASTER_PORT:={{master_port}}}"
export NODE_RANK MASTER_ADDR MASTER_PORT
%end
%if names_host
: "${HOST_ADDRESS:=$(hostname)}"
%end
%if one_here
%if port
: "${PORT:={{port}}}"
%end
%if several_copies
: "${COPY:=0}"
export COPIES={{copies}}
%end
%end

%if copies_here
: "${FIRST_COPY:=0}"  # of {{copies}}, {{here}} on each node
: "${FIRST_GPU:=0}"
run() {
  COPY="$1"
  export COPIES={{copies}}
%if port
  PORT=$(({{port}} + COPY))
%end
%if gpus
  local first=$((FIRST_GPU + (COPY - FIRST_COPY) * {{gpus}}))
  export {{visible}}
  {{visible}}=$(seq -s, "$first" $((first + {{gpus}} - 1)))
%end
  {{arguments}}
  exec {{command}}
}

trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
LAST_COPY=$((FIRST_COPY + {{fit}}))
((LAST_COPY < {{copies}})) || LAST_COPY={{copies}}
for ((copy = FIRST_COPY; copy < LAST_COPY; copy++)); do
  run "$copy" &
done
# If one copy ends, all end.
wait -n
%else
%if has_neighbours
if [[ -n "${FIRST_GPU:-}" ]]; then
  export {{visible}}
  {{visible}}=$(seq -s, "$FIRST_GPU" $((FIRST_GPU + {{gpus}} - 1)))
fi

%end
{{arguments}}

exec {{command}}
%end
