"""What the original code prepared is refused where it is not whole; what it holds is tested with opening."""

import json
import shutil

import pytest
from testing.golden_texts import GOLDEN

from data_utils.original_corpus import OriginalCorpus
from data_utils.word_vocabulary import WordVocabulary

INFO = {"vocab_size": 270, "cutoffs": [0, 100, 200, 270], "dataset": "ptb"}


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(GOLDEN / "ptb" / "tfrecords", tmp_path / "tfrecords")
    shutil.copy(GOLDEN / "ptb" / "cache.pkl", tmp_path)
    (tmp_path / "corpus-info.json").write_text(json.dumps(INFO))
    return tmp_path


def opened(folder, **rows):
    return OriginalCorpus(folder / "tfrecords", folder / "tfrecords", rows=rows)


def test_what_it_knows(folder):
    corpus = opened(folder)
    assert (corpus.splits, corpus.n_token, corpus.cutoffs, corpus.num_hosts) == (("valid", "test"), 270, (100, 200), 1)
    assert corpus.vocabulary.lower_case and corpus.vocabulary.line_end == "<eos>" and corpus.vocabulary.unknown == "<unk>"
    assert corpus.identity == opened(folder).identity != opened(folder, test=5).identity
    with pytest.raises(ValueError, match="host 0.*Received: host=1"):
        corpus.dataset("valid", 7, host=1)
    with pytest.raises(ValueError, match="at most"):
        corpus.dataset("valid", 10_000, drop_remainder=True)


@pytest.mark.parametrize("content", ["", "[]", '{"vocab_size": 270}', json.dumps({**INFO, "vocab_size": "270"}),
                                     json.dumps({**INFO, "cutoffs": [1.5]})])
def test_corpus_info_that_is_none(folder, content):
    (folder / "corpus-info.json").write_text(content)
    with pytest.raises(ValueError, match="Expected JSON with vocab_size, cutoffs and dataset. Received: corpus_info_path="):
        opened(folder)


def test_the_vocabulary_of_another_corpus(folder):
    shutil.copy(GOLDEN / "wt103" / "cache.pkl", folder)
    with pytest.raises(ValueError, match="not of another text. Received: valid records"):
        opened(folder)


def test_ids_beyond_the_vocabulary(folder):
    few = json.loads((GOLDEN / "ptb" / "vocab.json").read_text())["idx2sym"][:100]
    WordVocabulary(few).save(folder / "few.json")
    with pytest.raises(ValueError, match="Expected ids below 100, those of the vocabulary, in the valid records.*Received: 2"):
        OriginalCorpus(folder / "tfrecords", folder / "tfrecords", vocab_file=str(folder / "few.json"))


def test_another_number_of_symbols(folder):
    (folder / "corpus-info.json").write_text(json.dumps({**INFO, "vocab_size": 300}))
    with pytest.raises(ValueError, match="Expected a vocabulary of 300 symbols.*Received: n_token=270"):
        opened(folder)


def test_a_damaged_record_file(folder):
    path = next((folder / "tfrecords").glob("valid*.tfrecords"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"Received: file=.*{path.name}"):
        opened(folder)
