"""Makes what bench/python_examples.py trains and asks: example_inputs.py DATA OUT

Weights are random, sizes those of models that people use: an encoder of MiniLM-L6's, a BERT of two layers, and a Llama
of 19 million parameters with a vocabulary learned of the text that it is trained on.
"""

import sys
from pathlib import Path

import tokenizers
import torch
import transformers

LETTERS = 200_000  # of the text: the held-out tenth is evaluated whole
TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


def bert(data: Path, out: Path, width: int, layers: int, heads: int) -> None:
    vocabulary = data / "tokenizers/bert/bert-base-uncased-vocab.txt"
    transformers.BertTokenizer(str(vocabulary), do_lower_case=True).save_pretrained(out)
    (out / "vocab.txt").write_bytes(vocabulary.read_bytes())
    config = transformers.BertConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width
    )
    transformers.BertModel(config).save_pretrained(out)


def llama(text: Path, out: Path) -> None:
    # Of the text's own letters, so that nothing a model of random weights writes is half of a letter.
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train([str(text)], tokenizers.trainers.BpeTrainer(vocab_size=4096, special_tokens=["<|endoftext|>"]))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<|endoftext|>", eos_token="<|endoftext|>"
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(out)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=10,
        num_attention_heads=6,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(out)


def main() -> None:
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    text = (data / "lm/tinyshakespeare/input.txt").read_text(encoding="utf-8")[:LETTERS]
    (out / "text.txt").write_text(text, encoding="utf-8")
    bert(data, out / "encoder", 384, 6, 12)
    bert(data, out / "bert", 128, 2, 2)
    llama(out / "text.txt", out / "llama")


main()
