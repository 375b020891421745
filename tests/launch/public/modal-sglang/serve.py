import subprocess

import modal

GPU_TYPE, N_GPUS = "H100!", 2
MODEL = "Qwen/Qwen3.5-35B-A3B-FP8"
image = modal.Image.from_registry("lmsysorg/sglang:v0.5.9-cu129-amd64-runtime")
drafts = {"speculative-algorithm": "EAGLE"}
drafts |= {"speculative-num-steps": 3, "speculative-eagle-topk": 1}
drafts |= {"speculative-num-draft-tokens": 4}
app = modal.App(name="low-latency")


@app.cls(image=image, gpu=f"{GPU_TYPE}:{N_GPUS}")
@modal.concurrent(max_inputs=32)
class Server:
    @modal.enter()
    def start(self):
        command = ["python", "-m", "sglang.launch_server", "--model-path", MODEL]
        command += ["--tp", f"{N_GPUS}", "--mem-fraction", "0.8"]
        for key, value in drafts.items():
            command += [f"--{key}", f"{value}"]
        self.process = subprocess.Popen(command)
