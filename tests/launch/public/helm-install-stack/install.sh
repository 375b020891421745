#!/bin/bash
set -e
helm repo add vllm https://vllm-project.github.io/production-stack
helm upgrade --install stack vllm/vllm-stack \
  --namespace serving --create-namespace \
  -f assets/values-two-copies.yaml \
  --set routerSpec.routingLogic=session
kubectl wait --for=condition=ready pod -l model=llama --timeout=600s
