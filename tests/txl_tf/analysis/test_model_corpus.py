"""The text that a model is measured on must be in its symbols."""

import pytest

from testing.text_folders import write_files
from data_utils import ByteVocabulary, CharVocabulary, prepare_corpus
from txl_tf.analysis.model_corpus import open_corpus_of


def test_the_vocabulary_must_be_the_models(tmp_path):
    write_files(tmp_path, {f"{split}.txt": b"a rose is a rose " * 9 for split in ("train", "valid", "test")})
    identity = prepare_corpus("text", tmp_path, train_batch_size=2, eval_batch_size=2).identity
    assert open_corpus_of(ByteVocabulary(), None, str(tmp_path), 8).identity == identity
    with pytest.raises(ValueError, match="of 3 symbols. Received: data_dir=.*, of 256 symbols"):
        open_corpus_of(CharVocabulary("abc"), None, str(tmp_path), 8)
