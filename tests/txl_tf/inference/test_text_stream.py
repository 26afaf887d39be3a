"""Text of tokens as they come: characters of several bytes, stop texts, detokenizing, and nothing taken back."""

import random

import pytest
from testing.optional_package import needed

from data_utils import ByteVocabulary, CharVocabulary, SubwordVocabulary, WordVocabulary
from data_utils.detokenize import detokenize
from txl_tf.inference.text_stream import TextStream

BYTES = ByteVocabulary()
WORDS = WordVocabulary(["<eos>", "the", "fox", "'s", "did", "n't", "@-@", "(", ")", ",", "=", '"', "<unk>"], unknown="<unk>")


def shown(stream, tokens):
    """Returns what is shown after each of the tokens, and at the end."""
    parts = [stream.feed(token) for token in tokens] + [stream.finish()]
    assert stream.text == "".join(parts) and stream.ended
    return parts


@pytest.mark.parametrize("ids, parts", [
    (b"a\xc3\xa9z", ["a", "", "é", "z", ""]), (b"a\xc3", ["a", "", "\ufffd"]), (b"", [""]),
    ("€😀".encode(), ["", "", "€", "", "", "", "😀", ""]), (b"\xff\xff\xff\xffa", ["", "", "", "\ufffd", "\ufffd\ufffd\ufffda", ""]),
    (b"\xff\xff\xe2\x82\xac", ["", "", "", "", "\ufffd\ufffd€", ""]),
])
def test_a_character_is_shown_when_its_last_byte_has_come(ids, parts):
    assert shown(TextStream(BYTES.decode, b"prompt\xc3\xa9"), ids) == parts


def test_any_bytes_end_as_they_are_decoded_at_once():
    draw = random.Random(1)
    for _ in range(200):
        ids = bytes(draw.choices([*"é€😀".encode(), 0xFF, 0xED, 0xA0, ord("a")], k=12))
        assert "".join(shown(TextStream(BYTES.decode, b"a"), ids)) == BYTES.decode(list(ids))


def test_an_unknown_character_that_is_shown_as_u_fffd():
    vocabulary = CharVocabulary("a\ufffd", unknown="\ufffd")
    assert shown(TextStream(vocabulary.decode, [1]), [1, 1, 0, 1]) == ["", "", "\ufffd\ufffda", "", "\ufffd"]


def test_subwords():
    needed("sentencepiece")
    text = "an apple\n  and a pear, "
    vocabulary = SubwordVocabulary.trained([text.encode() * 20])
    ids = vocabulary.encode(f"{text}€ 😀é {text}").tolist()
    for prompt in (1, 3, len(ids) - 1):
        parts = shown(TextStream(vocabulary.decode, ids[:prompt]), ids[prompt:])
        assert vocabulary.decode(ids[:prompt]) + "".join(parts) == vocabulary.decode(ids)
        assert "\ufffd" not in "".join(parts)


def test_words_stay_apart():
    ids = WORDS.encode("the fox\n\nthe fox did\nthe").tolist()
    for prompt in range(1, len(ids)):
        stream = TextStream(WORDS.decode, ids[:prompt])
        assert WORDS.decode(ids[:prompt]) + "".join(shown(stream, ids[prompt:])) == WORDS.decode(ids)


@pytest.mark.parametrize("stop, text, parts", [
    (["cd"], "abcde", ["a", "b", "", ""]), (["cd"], "abce", ["a", "b", "", "ce", ""]), (["cd"], "abc", ["a", "b", "", "c"]),
    (["aab"], "aaab", ["", "", "a", ""]), (["abc", "b"], "abc", ["", "a"]), (["bc", "abc"], "xabc", ["x", "", "", ""]),
    (["x", "y"], "ay", ["a", ""]), (["a"], "a", [""]), (["é"], "né", ["n", "", ""]), (["\n\n"], "a\nb\n\nc", ["a", "", "\nb", "", ""]),
])
def test_a_stop_text(stop, text, parts):
    stream, found = TextStream(BYTES.decode, b"ab", stop=stop), []
    for token in text.encode():
        found.append(stream.feed(token))
        if stream.ended:
            break
    found += [] if stream.ended else [stream.finish()]
    assert found == parts
    assert stream.finish() == stream.feed(ord("z")) == ""
    assert stream.text == "".join(parts)


def test_a_stop_text_over_the_border_of_words_and_within_one():
    for stop, text in ((" fox's", "the"), ("ox", "the f"), ("fox'", "the "), ("n't (", "the fox's did")):
        stream = TextStream(WORDS.decode, [0], "\n", [stop], detokenize, whole_words=True)
        assert "".join(shown(stream, WORDS.encode("the fox 's did n't ( the"))) == text


def test_a_stop_text_that_the_end_completes():
    stream = TextStream(BYTES.decode, b"a", "a", ["ox"], detokenize)
    assert shown(stream, b" fox") == ["", "", "", "", " f"]


def test_words_are_detokenized_as_they_come():
    ids = WORDS.encode("fox 's did n't ( the @-@ fox ) , \" the \"\n= = fox = =")
    stream = TextStream(WORDS.decode, WORDS.encode("the"), "the", (), detokenize, whole_words=True)
    assert shown(stream, ids) == [
        " fox", "'s", " did", "n't", " (", "the", "-", "fox", ")", ",", ' "', "the", '"', "\n", "=", "=", " fox", " =", "=", ""]


def test_a_prompt_decides_how_the_first_word_is_joined():
    for prompt, word, wanted in (("the fox", "'s", "'s"), ("the (", "fox", "fox"), ("the (\n", "fox", "fox"), ("the ", "fox", " fox")):
        assert shown(TextStream(WORDS.decode, WORDS.encode(prompt), prompt, (), detokenize, True), WORDS.encode(word)) == [wanted, ""]


def test_words_of_several_tokens_are_detokenized_when_they_are_complete():
    stream = TextStream(BYTES.decode, b"the ( f", "the ( f", (), detokenize)
    assert shown(stream, b"ox @-@ a") == ["", "", "ox", "", "", "", "-", "", "a"]


@pytest.mark.parametrize("whole_words", [True, False])
def test_detokenized_in_parts_it_is_the_same(whole_words):
    draw = random.Random(2)
    for _ in range(100):
        ids = draw.choices(range(WORDS.n_token), k=12)
        prompt, text = WORDS.decode(ids[:3]), WORDS.decode(ids)
        parts = shown(TextStream(WORDS.decode, ids[:3], prompt, (), detokenize, whole_words), ids[3:])
        assert detokenize(prompt) + "".join(parts) == detokenize(text)
