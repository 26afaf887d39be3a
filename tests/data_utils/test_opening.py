"""A training script opens whatever its data_dir holds: text, a prepared folder, records of the original code."""

import shutil
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from testing.golden_texts import GOLDEN, copied

from data_utils.atomic_files import locked
from data_utils.corpus import Corpus
from data_utils.opening import open_corpus
from data_utils.original_corpus import OriginalCorpus
from data_utils.prepare import prepare_corpus

TEXT = b"from one segment to the next\nmemory goes along\n" * 20


def text_folder(folder):
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_bytes(TEXT)
    return folder


def tokens(corpus, split="train", tgt_len=16):
    return np.concatenate([labels.numpy() for _, labels in corpus.dataset(split, tgt_len)], axis=1)


@pytest.fixture
def original(tmp_path):
    """A folder as the original's data_utils.py leaves it, of ptb: valid in 3 rows, test in 4."""
    folder = copied("ptb", tmp_path / "ptb")
    shutil.copytree(GOLDEN / "ptb" / "tfrecords", folder / "tfrecords")
    shutil.copy(GOLDEN / "ptb" / "cache.pkl", folder)
    (folder / "corpus-info.json").write_text('{"vocab_size": 270, "cutoffs": [], "dataset": "ptb"}')
    return folder


def test_text_is_prepared(tmp_path):
    corpus = open_corpus(None, str(text_folder(tmp_path / "text")), 16, train_batch_size=4, eval_batch_size=2)
    assert isinstance(corpus, Corpus) and corpus.vocabulary.kind == "byte" and corpus.rows("train") == 4


def test_a_folder_is_opened_as_it_was_prepared(tmp_path):
    folder = text_folder(tmp_path / "text")
    first = prepare_corpus("text", folder, 4, 2, 16, vocabulary="word", lower_case=True, num_passes=2)
    again = open_corpus(None, str(folder), 16)
    assert again.identity == first.identity and again.vocabulary.lower_case
    assert open_corpus(None, str(folder), 16, vocabulary="byte").vocabulary.kind == "byte"
    assert open_corpus(None, str(folder), 16, train_batch_size=2, eval_batch_size=1).rows("train") == 2


def test_the_folder_of_the_records_will_do(tmp_path):
    folder = text_folder(tmp_path / "text")
    corpus = prepare_corpus("text", folder, 4, 2, 16)
    records = str(folder / "tfrecords")
    assert open_corpus(None, f"{records}/", 16, record_info_dir=records, corpus_info_path=f"{folder}/corpus-info.json").identity == (
        corpus.identity)


def test_without_its_text_a_prepared_folder_is_as_it_is(tmp_path):
    folder = text_folder(tmp_path / "text")
    expected = tokens(prepare_corpus("text", folder, 4, 2, 16))
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").unlink()
    np.testing.assert_array_equal(tokens(open_corpus(None, str(folder), 16, train_batch_size=4)), expected)
    with pytest.raises(ValueError, match="without its text here: rows of train=4. Received: .*rows of train=8"):
        open_corpus(None, str(folder), 16, train_batch_size=8)
    for wish in (dict(num_hosts=2), dict(vocabulary="byte"), dict(vocab_size=4), dict(lower_case=True), dict(num_passes=5),
                 dict(train_files="other.txt"), dict(shuffle_seed=7)):
        name, value = next(iter(wish.items()))
        with pytest.raises(ValueError, match=f"without its text here: {name}=.*, {name}={value}$"):
            open_corpus(None, str(folder), 16, **wish)


def test_another_dataset_is_never_served_from_what_is_there(tmp_path):
    folder = text_folder(tmp_path / "text")
    prepare_corpus("text", folder, 4, 2, 16)
    (folder / "test.txt").unlink()
    named = {f"{split}_files": str(folder / "no.txt") for split in ("train", "valid", "test")}
    with pytest.raises(FileNotFoundError, match="Received: train_files=.*no.txt"):
        open_corpus("ptb", str(folder), 16, **named)


def test_a_prepared_folder_elsewhere(tmp_path):
    folder = text_folder(tmp_path / "text")
    expected = tokens(prepare_corpus("text", folder, 4, 2, 16))
    for path in folder.rglob("*"):
        if path.is_file():
            tf.io.gfile.makedirs(f"ram://opened/{path.relative_to(folder).parent}")
            tf.io.gfile.copy(str(path), f"ram://opened/{path.relative_to(folder)}", overwrite=True)
    np.testing.assert_array_equal(tokens(open_corpus(None, "ram://opened", 16)), expected)
    np.testing.assert_array_equal(tokens(open_corpus(None, "ram://opened/tfrecords", 16)), expected)


def test_a_folder_elsewhere_that_is_not_prepared(tmp_path):
    with pytest.raises(ValueError, match="Expected --data_dir to be a local folder.*Received: data_dir=ram://nothing"):
        open_corpus(None, "ram://nothing", 16)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("split, rows", [("valid", 3), ("test", 4)])
def test_records_of_the_original(original, split, rows):
    corpus = open_corpus(None, str(original / "tfrecords"), 16, eval_batch_size=rows, corpus_info_path=str(original / "corpus-info.json"))
    assert isinstance(corpus, OriginalCorpus) and corpus.n_token == 270 and corpus.splits == (split,) and corpus.rows(split) == rows
    files = {f"{name}_files": str(original / f"{name}.txt") for name in ("train", "valid", "test")}
    ours = prepare_corpus("ptb", original / "ours", rows, rows, 7, **files)
    assert ours.vocabulary.symbols == corpus.vocabulary.symbols
    found, expected = tokens(corpus, split), tokens(ours, split)
    np.testing.assert_array_equal(found, expected[:, :found.shape[1]])
    assert found.shape[1] > 150
    assert corpus.n_labels(split) == found.size and corpus.n_segments(split, 16) == len(list(corpus.dataset(split, 16)))
    corpus.check()


def test_records_of_both_are_refused_unless_named(original):
    prepare_corpus("ptb", original, 3, 3, 7)
    shutil.copytree(GOLDEN / "ptb" / "tfrecords", original / "tfrecords", dirs_exist_ok=True)
    records = str(original / "tfrecords")
    with pytest.raises(ValueError, match="Expected --record_info_dir.*Received: data_dir="):
        open_corpus(None, records, 7, eval_batch_size=3)
    assert isinstance(open_corpus(None, records, 7, eval_batch_size=3, record_info_dir=records), OriginalCorpus)


@pytest.mark.parametrize("change, message", [
    (dict(vocabulary="byte"), "Expected --vocabulary=word.*Received: vocabulary=byte"),
    (dict(num_hosts=2), "one host for records of the original code"),
    (dict(corpus_info_path="/no/such.json"), "corpus-info.json of the original code.*Received: corpus_info_path=/no/such.json"),
    (dict(vocab_file="/no/cache.pkl"), "cache.pkl at --vocab_file.*Received: vocab_file=/no/cache.pkl"),
])
def test_what_the_original_left_must_be_complete(original, change, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        open_corpus(None, str(original / "tfrecords"), 7, **change)


def test_another_batch_size_than_the_original_s(original):
    corpus = open_corpus(None, str(original / "tfrecords"), 7, eval_batch_size=5)
    with pytest.raises(ValueError, match="Expected --eval_batch_size to be .* the rows of the records of the valid split"):
        corpus.rows("valid")
    with pytest.raises(ValueError, match="Expected a split among"):
        corpus.rows("train")


def test_another_dataset_than_the_original_s(original):
    with pytest.raises(ValueError, match="Expected --dataset=ptb.*Received: dataset=enwik8"):
        open_corpus("enwik8", str(original / "tfrecords"), 7)


def test_record_info_that_is_not_there(tmp_path):
    folder = text_folder(tmp_path / "prepared")
    prepare_corpus("text", folder, 4, 2, 16)
    with pytest.raises(FileNotFoundError, match="record_info.*in --record_info_dir"):
        open_corpus(None, str(folder), 16, record_info_dir=str(tmp_path))
    with pytest.raises(FileNotFoundError, match="record_info.*in --record_info_dir"):
        open_corpus(None, str(text_folder(tmp_path / "text")), 16, record_info_dir=str(tmp_path))


def test_a_folder_that_another_host_is_preparing_is_read_afterwards(tmp_path):
    folder = text_folder(tmp_path / "text")
    prepare_corpus("text", folder, 4, 2, 16, vocabulary="word")
    begun, opened = threading.Event(), []

    def prepare():
        with locked(folder):
            content = (folder / "corpus.json").read_bytes()
            (folder / "corpus.json").unlink()
            begun.set()
            time.sleep(1)
            assert not opened
            (folder / "corpus.json").write_bytes(content)

    other = threading.Thread(target=prepare)
    other.start()
    begun.wait()
    opened.append(open_corpus(None, str(folder), 16))
    other.join()
    assert opened[0].vocabulary.kind == "word"
