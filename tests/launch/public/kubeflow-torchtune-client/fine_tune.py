import os

from kubeflow.trainer import *

client = TrainerClient()
job_name = client.train(
    runtime=client.get_runtime("torchtune-qwen2.5-1.5b"),
    initializer=Initializer(
        dataset=HuggingFaceDatasetInitializer(storage_uri="hf://tatsu-lab/alpaca/data"),
        model=HuggingFaceModelInitializer(
            storage_uri="hf://Qwen/Qwen2.5-1.5B-Instruct",
            access_token=os.environ["HF_TOKEN"],
        ),
    ),
    trainer=BuiltinTrainer(
        config=TorchTuneConfig(
            batch_size=4,
            dtype=DataType.FP32,
            dataset_preprocess_config=TorchTuneInstructDataset(
                source=DataFormat.PARQUET, split="train[:1000]"
            ),
            resources_per_node={"memory": "128G", "gpu": 2},
        )
    ),
)
client.wait_for_job_status(name=job_name, status={"Running"})
