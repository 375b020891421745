"""Model types of Hugging Face that are known and not read, and what of them is not modelled."""

from __future__ import annotations

_ENCODERS = (
    "albert bert bert-generation big_bird camembert data2vec-text deberta deberta-v2 distilbert "
    "electra ernie megatron-bert modernbert rembert roberta roberta-prelayernorm roc_bert roformer "
    "xlm xlm-roberta xlm-roberta-xl xmod"
)
_ENCODER_DECODERS = (
    "bart bigbird_pegasus blenderbot blenderbot-small florence2 marian mbart mt5 mvp pegasus "
    "pix2struct plbart pp_formulanet prophetnet t5 t5gemma t5gemma2 trocr udop umt5 "
    "vision-encoder-decoder whisper"
)
_GROUPS = {
    "encoders": _ENCODERS,
    "encoders of images and text": "blip git",
    "actions of robots": "pi0",
    "encoders beside the decoder": _ENCODER_DECODERS,
    "Mamba-1 layers": "falcon_mamba jamba mamba zamba",
    "Mamba-2 beside attention in one layer": "falcon_h1",
    "attention layers that share weights": "zamba2",
    "recurrent layers": "recurrent_gemma rwkv xlstm",
    "lightning attention": "bailing_hybrid minimax",
    "linear attention with a decay per channel": "glm5_next glm5_next_text kimi_linear",
    "short convolutions": (
        "inkling inkling2 inkling2_text inkling_mm_model inkling_text lfm2 lfm2_moe lfm2_vl lfm3 "
        "lfm3_vl"
    ),
    "several streams of residuals": "deepseek_v4 hy_v4 qwen4_exp qwen4_exp_text",
    "gates of latent attention and of norms": "axk2",
    "latent attention that shares its cache between layers": "mistral_large4 mistral_large4_text",
    "two blocks of attention in a layer and experts that do nothing": "longcat_flash",
    "experts of attention": "jetmoe",
    "compressed convolutional attention": "zaya",
    "differential attention": "diffllama",
    "attention under a dynamic mask": "doge",
    "relative attention": "cpmant reformer xlnet",
    "cross-attention within the language model": (
        "evolla idefics kosmos-2 kosmos-2.5 mllama mllama_text_model moshi musicgen musicgen_melody"
    ),
    "patches of bytes": "blt",
    "layers that are passed several times": "hrm_text",
    "inputs of several layers at once": "gemma3n gemma3n_text",
    "experts of text and of images": "ernie4_5_vl_moe",
    "diffusion of text": "diffusion_gemma diffusion_gemma_text",
    "a window that spares the image": "unlimited_ocr unlimited_ocr_text",
    "a drafting model's part": "gemma4_assistant gemma4_unified_assistant",
}
UNMODELLED = {name: reason for reason, names in _GROUPS.items() for name in names.split()}
