#!/usr/bin/env bash
# Runs the official AgentX harness (agentx-harness 1.0.12) on a folder of traces against a server, and prints where its
# artifacts are. `samovar report FOLDER` reads them; `benchmarks/agentx.py FOLDER` compares its figures with ours.
#
#   scripts/agentx.sh [options] TRACES [-- more flags of `agentx profile`]
#
#   -u URL         the server                                   http://127.0.0.1:8000
#   -m MODEL       model name                                   the first one the server lists
#   -t FOLDER      Hugging Face tokenizer of the model          `samovar tokenizer export`
#   -c N           concurrency: live session trees              2
#   -d SECONDS     time to measure                              120
#   -w N           warm-up requests per lane                    1
#   -r             keep the prompts too, for the ceiling of what was sent (large: the whole text of every request)
#   -o FOLDER      artifacts                                    agentx-results
#   -e FOLDER      environment to install the harness in        ~/.cache/samovar/agentx-1.0.12
set -euo pipefail

VERSION=1.0.12
url=http://127.0.0.1:8000 model="" tokenizer="" concurrency=2 duration=120 warmup=1 out=agentx-results level=()
environment="${XDG_CACHE_HOME:-$HOME/.cache}/samovar/agentx-$VERSION"

usage() { sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//'; }
fail() { echo "agentx.sh: $*" >&2; exit 2; }

while getopts "u:m:t:c:d:w:ro:e:h" flag; do
  case $flag in
    u) url=${OPTARG%/} ;;
    m) model=$OPTARG ;;
    t) tokenizer=$OPTARG ;;
    c) concurrency=$OPTARG ;;
    d) duration=$OPTARG ;;
    w) warmup=$OPTARG ;;
    r) level=(--export-level raw) ;;
    o) out=$OPTARG ;;
    e) environment=$OPTARG ;;
    h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[[ $# -ge 1 ]] || { usage >&2; exit 2; }
traces=$1
shift
[[ ${1:-} != -- ]] || shift
[[ -e $traces ]] || fail "$traces: no such file or folder"
url=${url%/v1}

if [[ ! -x $environment/bin/agentx ]]; then
  echo "installing agentx-harness $VERSION in $environment (some minutes, about 1.1 GB)" >&2
  python3 -m venv "$environment"
  "$environment/bin/pip" install --quiet "agentx-harness==$VERSION"
fi

if [[ -z $model ]]; then
  cards=$(curl --silent --show-error --fail --max-time 30 "$url/v1/models") || fail "no server answers at $url"
  model=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["data"][0]["id"])' <<<"$cards")
fi

mkdir -p "$out"
if [[ -z $tokenizer ]]; then
  tokenizer=$out/tokenizer
  [[ -d $tokenizer ]] || samovar tokenizer export "$tokenizer"
fi

# With HF_HUB_OFFLINE set, the harness takes a tokenizer folder for a hub id and refuses it.
unset HF_HUB_OFFLINE
# Its copies of prepared traces go with the artifacts, not to the home folder.
export AIPERF_DATASET_MMAP_CACHE_DIR="$out/prepared"
# Tells the server which agent's parent is which.
export AIPERF_HTTP_X_DYNAMO_SESSION_ID_FROM_CORRELATION_ID=1

# Local traces and runs under 900 s are outside the official scenario; --unsafe-override admits that.
"$environment/bin/agentx" profile \
  --url "$url" --endpoint /v1/chat/completions --model "$model" --tokenizer "$tokenizer" \
  --custom-dataset-type weka_trace --input-file "$traces" \
  --concurrency "$concurrency" --benchmark-duration "$duration" --warmup-requests-per-lane "$warmup" \
  --random-seed 42 --use-server-token-count --unsafe-override --ui simple \
  --output-artifact-dir "$out/artifacts" ${level[@]+"${level[@]}"} "$@"
echo "artifacts in $out/artifacts" >&2
