import sagemaker

IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/djl-inference:0.33.0-lmi15.0.0-cu128"
model = sagemaker.Model(
    image_uri=IMAGE,
    role=sagemaker.get_execution_role(),
    env={
        "HF_MODEL_ID": "meta-llama/Llama-3.3-70B-Instruct",
        "OPTION_ROLLING_BATCH": "disable",
        "OPTION_ASYNC_MODE": "true",
        "OPTION_TENSOR_PARALLEL_DEGREE": "8",
        "OPTION_MAX_MODEL_LEN": "32768",
        "OPTION_MAX_ROLLING_BATCH_SIZE": "64",
    },
)
model.deploy(initial_instance_count=1, instance_type="ml.p4d.24xlarge")
