"""The text of a split becomes its stream of ids."""

import numpy as np

from data_utils.encode import encode_split
from data_utils.vocabulary import ByteVocabulary


def test_bytes_become_their_values_without_a_copy():
    text = np.frombuffer(b"ab\xff\n", np.uint8)
    ids = encode_split(text, ByteVocabulary())
    assert ids.tolist() == [97, 98, 255, 10]
    assert np.shares_memory(ids, text)
