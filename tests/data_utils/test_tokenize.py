"""Text as people write it, apart as in WikiText: Hugging Face's tokens, other sentences, text that is so already."""

import json

import pytest
from testing.golden_texts import GOLDEN

from data_utils.detokenize import detokenize
from data_utils.tokenize import tokenize

ENCODINGS = json.loads((GOLDEN.parent / "hf" / "tokenizer" / "encodings.json").read_text())
SENTENCES = {
    "The captain's half-empty jar (23,000 lemons).": "The captain 's half @-@ empty jar ( 23 @,@ 000 lemons ) .",
    "“Don’t,” she said — it’s 3.5% of £10…": "\" Don 't , \" she said - it 's 3 @.@ 5 % of £ 10 ...",
    "Dr. Lee of the U.S. met Mr. J. Roe at No. 5. Then, in May. he left.": "Dr. Lee of the U.S. met Mr. J. Roe at No. 5 . Then , in May. he left .",
    "The players' bus of the 1990's; ''no'' or 'yes'?": "The players ' bus of the 1990 's ; \" no \" or ' yes ' ?",
    "a,b 1,2 3, 4.": "a , b 1 @,@ 2 3 , 4 .",
    "no_one@home.org, C++ & <b>": "no _ one @ home.org , C + + & < b >",
    "two\n lines .\n": "two\nlines .\n", "": "", "'": "'", "...": "...", ".": ".", "wait.. 'and.'": "wait .. ' and . '",
}


@pytest.mark.parametrize("example", ENCODINGS, ids=lambda example: example["text"][:20])
def test_tokens_of_hugging_face(example):
    assert tokenize(example["text"]).split() == example["tokens"]
    assert detokenize(tokenize(example["decoded"])) == example["decoded"].replace(" <eos>", "\n")


@pytest.mark.parametrize("text", SENTENCES)
def test_sentences(text):
    assert tokenize(text) == SENTENCES[text]


@pytest.mark.parametrize("text", [*SENTENCES.values(), *(" ".join(example["tokens"]) for example in ENCODINGS),
                                  *(GOLDEN / "wt103" / "raw" / "valid.txt").read_text().split("\n")[:50]])
def test_text_that_is_written_so_stays(text):
    assert tokenize(text) == "\n".join(" ".join(line.split()) for line in text.split("\n"))
