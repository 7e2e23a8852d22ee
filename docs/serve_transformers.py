"""A transformers folder behind all nets; ``python docs/serve_transformers.py [HOME]`` makes and publishes a tiny one.

Then: ``failsoft serve --app docs.serve_transformers:config``. Needs ``pip install 'failsoft[transformers]'``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from failsoft.artifacts.bundle import Bundle
from failsoft.models.foreign.hf_files import copy_model_folder
from failsoft.models.foreign.hf_models import HfClassifier
from failsoft.serving import AppSpec, Classification, ConstantRung, Rung, publish_own

LABELS = ("play_music", "get_weather")
TEXTS = ["play some jazz", "play the next song", "will it rain today", "is it cold in rome"]


def rungs(_bundle: Bundle) -> list[Rung]:
    """Who answers instead, in the gateway process."""
    return [ConstantRung("unknown")]


config = AppSpec(predictor=HfClassifier(), quality=Classification(labels=LABELS), rungs=rungs)


def train(folder: Path) -> None:
    """Stands for a model of your own, saved by ``save_pretrained``."""
    import torch  # noqa: PLC0415 -- gateways import this file, and must not load torch
    import transformers as hf  # noqa: PLC0415
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415

    words = ["[PAD]", "[UNK]", *sorted({word for text in TEXTS for word in text.split()})]
    rust = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "[UNK]"))
    rust.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=rust, pad_token=words[0], unk_token=words[1])
    torch.manual_seed(0)
    sizes = {"vocab_size": len(words), "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = hf.BertForSequenceClassification(hf.BertConfig(**sizes, id2label=dict(enumerate(LABELS))))
    batch = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"), labels=torch.tensor([0, 0, 1, 1]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
    for _ in range(40):
        model.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    for part in (model, tokenizer):
        part.save_pretrained(folder)


def publish(home: Path) -> Bundle:
    """Only safetensors, JSON and words enter the release; weights are loaded from there, without a network."""
    train(home / "trained")
    copy_model_folder(home / "trained", home / "model/transformers")
    return publish_own(config, home / "model", healthy=TEXTS, home=home)


if __name__ == "__main__":
    print("published", publish(Path(sys.argv[1] if sys.argv[1:] else "work")).name)
