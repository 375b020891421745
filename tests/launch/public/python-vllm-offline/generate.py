import argparse

from vllm import LLM, SamplingParams

parser = argparse.ArgumentParser()
parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=4)
args = parser.parse_args()

MODEL = "meta-llama/Llama-3.1-70B-Instruct"
limits = {"max_model_len": 8192, "gpu_memory_utilization": 0.9}


def main() -> None:
    llm = LLM(
        model=MODEL,
        tensor_parallel_size=args.tensor_parallel_size,
        quantization="fp8",
        enforce_eager=False,
        max_num_seqs=64,
        **limits,
    )
    llm.generate(["Hello"], SamplingParams(temperature=0.8, max_tokens=256))


if __name__ == "__main__":
    main()
