"""Text of word corpora as people write it: sentences, odd input, and text that comes in parts."""

import itertools
import random
import re

import pytest

from data_utils.detokenize import detokenize

SENTENCES = {
    "The quick @-@ witted fox 's den lay dry , but she did n't sleep .": "The quick-witted fox's den lay dry, but she didn't sleep.",
    "Some 12 @,@ 500 people came ; 3 @.@ 5 % of them stayed !": "Some 12,500 people came; 3.5% of them stayed!",
    "The bridge ( the longest [ 1 ] of its kind ) fell .": "The bridge (the longest [1] of its kind) fell.",
    'A " half @-@ moon " , she said : " I \'m late " .': 'A "half-moon", she said: "I\'m late".',
    "It was ' good ' to see the players ' bus of the ' 90s .": "It was 'good' to see the players' bus of the '90s.",
    "They 've rock ' n ' roll , we 'll have O 'Brien ; I 'd go .": "They've rock 'n' roll, we'll have O'Brien; I'd go.",
    "they do n't pay $ 5 or c$ N a share for <unk> <unk> 's": "they don't pay $5 or c$N a share for <unk> <unk>'s",
    "She didn 't ask at 10 : 30 : nobody knew .": "She didn't ask at 10:30: nobody knew.",
    "= = Early life = =": "== Early life ==",
    "In 5 ° C , at 49 ° 12 ′ N , an angle of 90 ° is # 1 .": "In 5°C, at 49°12′ N, an angle of 90° is #1.",
    "no end <eos> the next , <eos>": "no end\nthe next,\n",
    "Well ... one – or two -- & £ 3 m": "Well... one – or two -- & £3 m",
    "one\n\n the \" next \n \" third \"": "one\n\nthe \"next\n\"third\"",
}
ODD = ["", " ", "\n", "\n \n", ".", ", . ; :", '"', '" " "', "' ' '", "( (", ") ) (",
       "@-@", "@-@ @,@", "$", "n't", "'s 's", "° °", "= = =", '" ( " )', "#", "@@@ @"]


@pytest.mark.parametrize("text", SENTENCES)
def test_a_sentence(text):
    assert detokenize(text) == SENTENCES[text]


@pytest.mark.parametrize("text", [*SENTENCES.values(), "It's \"so\" (they say): 5% of $3, isn't it?", "def main(self):"])
def test_text_that_is_written_well_stays(text):
    assert detokenize(text) == text


@pytest.mark.parametrize("text", ODD)
def test_odd_text_keeps_its_signs_and_is_not_changed_twice(text):
    shown = detokenize(text)
    assert signs(shown) == signs(text)
    assert detokenize(shown) == shown


def test_only_blanks_signs_of_joints_and_line_ends_are_changed():
    for text in [*SENTENCES, *mixtures(200)]:
        assert signs(detokenize(text)) == signs(text)


def test_blanks_do_not_count():
    assert detokenize("  the\t fox  's \u00a0 den\r\n ,") == "the fox's den\n,"


def test_text_in_parts_of_whole_words():
    for text in [*SENTENCES, *ODD, *mixtures(200)]:
        words = re.findall(r"[^\S\n]*(?:\n|\S+)", text)
        for cut in range(len(words) + 1):
            before, after = "".join(words[:cut]), "".join(words[cut:])
            assert detokenize(before) + detokenize(after, before) == detokenize(text)


def test_a_word_that_has_begun_is_gone_on_with():
    assert detokenize("n ( now ) 's", "def mai") == "n (now)'s"
    assert detokenize("n", "( mai") + detokenize(" )", "( main") == "n)"
    assert detokenize("s 'round", "it '") == "s 'round"
    assert detokenize(" ,", "one\ntwo") == ","
    assert detokenize(" two", "one\n") == "two"


def signs(text):
    """Returns what detokenizing must keep."""
    words = re.sub(r"@([^\w\s@])@", r"\1", text).replace("<eos>", "\n")
    return re.sub(r"[^\S\n]", "", words)


def mixtures(count):
    """Returns texts of words of the sentences in any order."""
    words = list(itertools.chain(*(sentence.split(" ") for sentence in [*SENTENCES, *ODD])))
    chance = random.Random(1)
    return [" ".join(chance.choices(words, k=9)) for _ in range(count)]
