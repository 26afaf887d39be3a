"""Records become segments whose rows go on from batch to batch."""

import numpy as np
import pytest
import tensorflow as tf

from data_utils.input_pipeline import segment_dataset
from data_utils.records import write_records

ROWS, ROW_LEN, CHUNK_LEN = 3, 26, 8  # 25 labels a row: chunks of 8, 8, 8 and 1
TGT_LENS = [1, 4, 5, 7, 8, 16, 24, 25, 40]  # some divide the chunk, some the row, some neither


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A record file of the stream 1000, 1001, ..., the last two of which fall off the rows."""
    path = tmp_path_factory.mktemp("records") / "r.tfrecord"
    write_records(1000 + np.arange(ROWS * ROW_LEN + 2), path, ROWS, CHUNK_LEN)
    return path


@pytest.mark.parametrize("tgt_len", TGT_LENS)
def test_rows_go_on_and_labels_are_one_token_ahead(path, tgt_len):
    batches = [(x.numpy(), y.numpy()) for x, y in segment_dataset(path, ROWS, tgt_len)]
    rows = 1000 + np.arange(ROWS * ROW_LEN).reshape(ROWS, ROW_LEN)
    np.testing.assert_array_equal(np.concatenate([x for x, _ in batches], axis=1), rows[:, :-1])
    np.testing.assert_array_equal(np.concatenate([y for _, y in batches], axis=1), rows[:, 1:])
    for (_, labels), (token_ids, _) in zip(batches, batches[1:]):
        np.testing.assert_array_equal(token_ids[:, 0], labels[:, -1])


@pytest.mark.parametrize("tgt_len", TGT_LENS)
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_every_segment_but_the_last_has_the_length_asked_for(path, tgt_len, drop_remainder):
    widths = [x.shape[1] for x, _ in segment_dataset(path, ROWS, tgt_len, drop_remainder)]
    whole, rest = divmod(ROW_LEN - 1, tgt_len)
    assert widths == [tgt_len] * whole + ([rest] if rest and not drop_remainder else [])


@pytest.mark.parametrize("drop_remainder, shape", [(False, (ROWS, None)), (True, (ROWS, 5))])
def test_shapes_are_static(path, drop_remainder, shape):
    spec = tf.TensorSpec(shape, tf.int32)
    assert segment_dataset(path, ROWS, 5, drop_remainder).element_spec == (spec, spec)


def test_a_second_pass_gives_the_same(path):
    dataset = segment_dataset(path, ROWS, 7)
    first, second = ([x.numpy().tolist() for x, _ in dataset] for _ in range(2))
    assert first == second


def test_skipping_resumes_inside_the_text(path):
    dataset = segment_dataset(path, ROWS, 4)
    token_ids, _ = next(iter(dataset.skip(3)))
    assert token_ids[:, 0].numpy().tolist() == [1012, 1012 + ROW_LEN, 1012 + 2 * ROW_LEN]
