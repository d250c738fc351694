#!/usr/bin/env bash
# Start a server for a manager (training/GPU.md), in the foreground:
#   scripts/gpu/serve.sh vllm    runs/qwen3-0.6b/merged         relation model behind vLLM's /classify, port 8000
#   scripts/gpu/serve.sh tei     runs/deberta-v3-base/merged    relation model behind text-embeddings-inference, port 8080
#   scripts/gpu/serve.sh fuser   Qwen/Qwen3-0.6B runs/fuser-qwen3-0.6b/adapter    fuser as a LoRA module, port 8001
#   scripts/gpu/serve.sh teacher Qwen/Qwen3-32B                 LLM that labels, or manages by prompt, port 8002
# PORT changes the port; more arguments go to the server.
set -euo pipefail

kind="${1:?give vllm, tei, fuser or teacher}"
model="${2:?give the folder of the merged model, the base of the fuser, or the LLM}"
shift 2
case "$kind" in
  vllm)
    exec vllm serve "$model" --runner pooling --served-model-name relation --port "${PORT:-8000}" "$@"
    ;;
  tei)
    exec text-embeddings-router --model-id "$model" --port "${PORT:-8080}" "$@"
    ;;
  fuser)
    adapter="${1:?give the adapter folder of the fuser}"
    shift
    exec vllm serve "$model" --enable-lora --max-lora-rank 32 --lora-modules fuser="$adapter" --port "${PORT:-8001}" "$@"
    ;;
  teacher)
    exec vllm serve "$model" --served-model-name teacher --port "${PORT:-8002}" "$@"
    ;;
  *)
    echo "no server $kind: give vllm, tei, fuser or teacher" >&2
    exit 2
    ;;
esac
