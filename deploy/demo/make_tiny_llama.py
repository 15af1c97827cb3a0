"""Makes ``tiny_llama``: a Llama of two layers with random weights, for engine ``ort-genai``.

``python deploy/demo/make_tiny_llama.py FOLDER`` needs onnxruntime-genai, torch, transformers,
onnx-ir and onnx, which nothing else here does: run it in an environment of its own. The weights are
random from a seed; PyTorch may draw others in another version.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CONTEXT = 1024
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
"""256 characters, one for each byte; the tokens 0 to 2 are the special ones."""


def main(out: Path) -> None:
    """Write the model with weights and tokenizer, as onnxruntime-genai's own builder does it."""
    torch.manual_seed(1)
    special = ["<s>", "</s>", "<unk>"]
    vocabulary = {text: number for number, text in enumerate((*special, *BYTES))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        eos_token_id=1,
    )
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(config).save_pretrained(folder)
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
        ).save_pretrained(folder)
        builder = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
        options = ["-p", "fp32", "-e", "cpu", "-c", f"{folder}/cache"]
        subprocess.run([*builder, "-i", folder, "-o", str(out), *options], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
