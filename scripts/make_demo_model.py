"""Make a small Llama with random weights and a tokenizer of its own, without a download.

Run by `make demo-model` with the engine's Python, which holds torch, transformers and tokenizers. The same call gives
the same bytes: the text that trains the tokenizer is invented here from a seed, and so are the weights. Such a model
says nothing of sense, but it costs an engine what a model of its shape costs.

    make_demo_model.py FOLDER [--size tiny|demo] [--twice]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch  # type: ignore[import-not-found]
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found]
from transformers import (  # type: ignore[import-not-found]
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)
from transformers.utils.logging import disable_progress_bar  # type: ignore[import-not-found]

SEED = 20250711
MAX_CONTEXT = 4096
HEAD_DIM = 32
SPECIAL = ("<unk>", "<s>", "</s>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
ONSETS = (*"bcdfghklmnprstv", "br", "ch", "dr", "gr", "pl", "st", "th", "")
VOWELS = (*"aeiou", "ai", "ea", "ou")
CODAS = (*"nrstlm", "nd", "st", "", "", "")


@dataclass(frozen=True)
class Shape:
    """What decides a model's cost; heads are of HEAD_DIM elements, and embeddings are tied."""

    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    words: int
    """Distinct words of the text that the tokenizer is trained on; they must suffice for `vocab` merges."""


SHAPES = {
    "tiny": Shape(vocab=2048, hidden=128, intermediate=352, layers=4, heads=4, kv_heads=2, words=3_000),
    "demo": Shape(vocab=8192, hidden=384, intermediate=1024, layers=7, heads=12, kv_heads=4, words=20_000),
}


def invented_text(words: int) -> Iterator[str]:
    """Yield lines of made-up words, frequent ones far more often than rare ones (Zipf), the same on every machine."""
    source = random.Random(SEED)
    lexicon = ["".join(source.choice(ONSETS) + source.choice(VOWELS) + source.choice(CODAS)
                       for _ in range(source.randint(1, 4))) for _ in range(words)]
    weights = [1 / rank for rank in range(1, words + 1)]
    for _ in range(words):
        line = source.choices(lexicon, weights, k=14)
        yield " ".join((line[0].capitalize(), *line[1:-1], str(source.randint(0, 9999)))) + ".\n"
    yield from (" ".join(lexicon[start : start + 14]) + "\n" for start in range(0, words, 14))


def write_tokenizer(shape: Shape, folder: Path) -> None:
    """Train a byte-level BPE tokenizer of exactly `shape.vocab` entries and save it with its chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=shape.vocab, special_tokens=list(SPECIAL), show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(invented_text(shape.words), trainer)
    if tokenizer.get_vocab_size() != shape.vocab:
        raise SystemExit(f"error: the text gave {tokenizer.get_vocab_size()} tokens, not {shape.vocab}")
    unknown, begin, end = SPECIAL
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=unknown, bos_token=begin, eos_token=end,
                                      model_max_length=MAX_CONTEXT)
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.save_pretrained(folder)


def write_weights(shape: Shape, folder: Path) -> int:
    """Save config.json and random bfloat16 weights; return the number of parameters."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # initialisation must not depend on how many cores share it
    config = LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.hidden, intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        head_dim=HEAD_DIM, max_position_embeddings=MAX_CONTEXT, tie_word_embeddings=True,
        bos_token_id=SPECIAL.index("<s>"), eos_token_id=SPECIAL.index("</s>"),
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def digest(folder: Path) -> str:
    """Hash names and contents of all files: equal digests are equal models."""
    total = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if not path.name.startswith("."):
            total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def make(shape: Shape, folder: Path) -> int:
    """Make the model beside its place, move it there when it is whole, and return the number of parameters."""
    draft = folder.with_name(folder.name + ".part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    write_tokenizer(shape, draft)
    parameters = write_weights(shape, draft)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    return parameters


def main() -> None:
    """Read the options, make the model and print where it is and what it hashes to."""
    parser = argparse.ArgumentParser(description="Make a small Llama with random weights, without a download.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=sorted(SHAPES), default="demo", help="tiny: 1 M parameters; demo: 14 M")
    parser.add_argument("--twice", action="store_true", help="make it a second time and fail if a byte differs")
    options = parser.parse_args()
    shape, folder = SHAPES[options.size], options.folder
    disable_progress_bar()
    parameters = make(shape, folder)
    found = digest(folder)
    if options.twice:
        make(shape, folder)
        if digest(folder) != found:
            raise SystemExit(f"error: two runs gave two models: {found} and {digest(folder)}")
    print(json.dumps({"folder": str(folder), "parameters": parameters, "sha256": found}))


if __name__ == "__main__":
    main()
