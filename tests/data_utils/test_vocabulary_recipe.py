"""What a vocabulary is made from."""

import pytest
from testing.odd_texts import OddBlocks

from data_utils.datasets import DATASETS
from data_utils.vocabulary import VOCABULARIES
from data_utils.vocabulary_recipe import VocabularyRecipe


def recipe(dataset="text", folder="folder", **changes):
    return VocabularyRecipe.of(DATASETS[dataset], folder, **changes)


@pytest.mark.parametrize("dataset, kind, counted, limits, cutoffs", [
    ("text", "byte", (), {}, ()),
    ("enwik8", "char", ("train", "valid", "test"), {}, ()),
    ("ptb", "word", ("train", "valid", "test"), {"unknown": "<unk>"}, ()),
    ("wt103", "word", ("train",), {"unknown": "<unk>"}, (20_000, 40_000, 200_000)),
    ("lm1b", "word", (), {}, (60_000, 100_000, 640_000)),
])
def test_what_the_datasets_have(dataset, kind, counted, limits, cutoffs):
    found = recipe(dataset)
    assert (found.kind, found.counted, found.limits, found.cutoffs) == (kind, counted, limits, cutoffs)
    assert found.file == ("folder/1b_word_vocab.txt" if dataset == "lm1b" else None)


def test_another_kind_is_made_from_the_train_split():
    found = recipe("wt103", kind="char", size=50, min_freq=2)
    assert (found.counted, found.limits, found.cutoffs) == (("train",), {"max_size": 50, "min_freq": 2}, ())
    assert found.start == dict(symbols="\ufffd", unknown="\ufffd")
    assert recipe(kind="subword").limits == {"size": None}
    assert recipe("ptb", kind="subword", size=300).limits == {"size": 300}
    assert recipe("enwik8", kind="byte").counted == ()


def test_one_billion_word_can_have_a_vocabulary_of_its_own():
    found = recipe("lm1b", size=100)
    assert (found.counted, found.file) == (("train",), None)
    vocabulary, counted = found.begin({})
    assert (vocabulary.symbols, counted) == (["<S>", "<UNK>"], ("train",))


def test_lower_case_of_the_user_counts_more():
    assert recipe("ptb").start["lower_case"]
    assert not recipe("ptb", lower_case=False).start["lower_case"]
    assert recipe(kind="word", lower_case=True).start["lower_case"]
    assert DATASETS["ptb"].start["lower_case"]


@pytest.mark.parametrize("kind", VOCABULARIES)
def test_every_kind_begins_with_something(kind):
    if kind != "subword":
        vocabulary, counted = recipe(kind=kind).begin({})
        assert (vocabulary.kind, counted) == (kind, () if kind == "byte" else ("train",))


def test_descriptions_differ_where_the_vocabulary_may(tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    digests = {"train": ["1"], "valid": ["2"], "test": ["3"]}
    recipes = [recipe(), *(recipe(kind="word", **changes) for changes in (
        {}, dict(size=9), dict(size=8), dict(min_freq=9), dict(lower_case=True), dict(file=tmp_path / "a"), dict(file=tmp_path / "b"))),
        recipe("wt103"), recipe("ptb"), recipe("ptb", lower_case=False)]
    descriptions = [found.description(digests) for found in recipes]
    assert all(a != b for index, a in enumerate(descriptions) for b in descriptions[:index])
    assert recipe(kind="word", file=tmp_path / "a").description({}) == descriptions[6]


def test_only_the_text_that_is_counted_matters():
    one, other = ({"train": ["1"], "valid": [valid], "test": ["3"]} for valid in "45")
    assert recipe("wt103").description(one) == recipe("wt103").description(other)
    assert recipe("ptb").description(one) != recipe("ptb").description(other)


@pytest.mark.parametrize("changes, message", [
    (dict(kind="runes"), "Expected --vocabulary to be one of byte, char, word, subword. Received: vocabulary='runes'"),
    (dict(size=5), "Expected --vocab_size and --min_freq with a vocabulary that is made .*vocab_size=5, .*vocabulary='byte'"),
    (dict(min_freq=5), "Expected --vocab_size and --min_freq .*min_freq=5"),
    (dict(kind="word", size=5, file="f"), "Expected --vocab_size and --min_freq .*vocab_file=f"),
    (dict(kind="subword", min_freq=2), "Expected no --min_freq with subwords. Received: min_freq=2"),
    (dict(kind="char", lower_case=False), "Expected --lower_case with words alone. Received: lower_case=False"),
    (dict(file="f"), "Expected no --vocab_file for bytes"),
    (dict(kind="word", file="no/such"), "Expected --vocab_file to be a file. Received: vocab_file=no/such"),
])
def test_contradictions_are_refused(changes, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        recipe(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["vocabulary.json", "cache.pkl", "vocab.bin"])
def test_a_file_that_says_it_itself_takes_no_lower_case(name, tmp_path):
    (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match=f"Expected no --lower_case with a --vocab_file that says it .*{name}"):
        recipe(kind="word", file=str(tmp_path / name), lower_case=True)


def test_a_list_of_words_takes_lower_case(tmp_path):
    (tmp_path / "list").write_text("a\nb\n")
    vocabulary, counted = recipe(kind="word", file=tmp_path / "list", lower_case=True).begin({"train": [OddBlocks("t", b"c")]})
    assert (vocabulary.encode("A\n").tolist(), counted) == ([0, 2], ())
    assert vocabulary.symbols == ["a", "b", "<eos>", "<unk>"]
