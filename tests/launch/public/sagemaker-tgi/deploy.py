import json

from sagemaker.huggingface import HuggingFaceModel, get_huggingface_llm_image_uri

number_of_gpu = 4
config = {
    "HF_MODEL_ID": "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "SM_NUM_GPUS": json.dumps(number_of_gpu),
    "MAX_INPUT_LENGTH": json.dumps(4096),
    "MAX_TOTAL_TOKENS": json.dumps(8192),
}
model = HuggingFaceModel(
    role="role", image_uri=get_huggingface_llm_image_uri("huggingface"), env=config
)
model.deploy(initial_instance_count=1, instance_type="ml.g5.12xlarge")
