#!/bin/bash
# A server in the cluster, without a file of its own.
REPLICAS=2
kubectl create namespace chat || true
cat <<EOF | kubectl apply -n chat -f -
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat
spec:
  replicas: ${REPLICAS}
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec:
      containers:
        - name: server
          image: vllm/vllm-openai:v0.11.0
          command: ["/bin/sh", "-c"]
          args: ["vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192"]
          resources:
            limits:
              nvidia.com/gpu: "1"
EOF
