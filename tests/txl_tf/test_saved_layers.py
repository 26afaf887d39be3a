"""Layers alone in a model of Keras's Functional API, saved here and loaded in a fresh process."""

import keras
import numpy as np
import pytest

import txl_tf
from testing.forks import forks
from testing.tiny_model import randomize, tiny_tokens

PROGRAM = """
import keras, numpy as np, txl_tf
token_ids = np.load("token_ids.npy")
model = keras.saving.load_model("model.keras")
np.savez("found.npz", outputs=model.predict(token_ids, verbose=0), variables=len(model.trainable_variables))
model.load_weights("other.weights.h5")
np.save("other.npy", model.predict(token_ids, verbose=0))
"""


def stack_of_layers(cutoffs):
    """Returns a language model without memory: embedding, attention, block and a head that shares the embedding's tables."""
    token_ids = keras.Input((None,), dtype="int32")
    embedding = txl_tf.AdaptiveEmbedding(11, 12, cutoffs=cutoffs, div_val=2 if cutoffs else 1)
    hidden = embedding(token_ids)
    hidden = hidden + txl_tf.RelativeMultiHeadAttention(num_heads=2, head_dim=5)(hidden)
    hidden = txl_tf.TransformerXLBlock(num_heads=3, head_dim=4, inner_dim=7)(hidden)
    head = txl_tf.AdaptiveSoftmax(11, cutoffs, 2, token_embedding=embedding) if cutoffs else txl_tf.FullSoftmax(11, token_embedding=embedding)
    return keras.Model(token_ids, head(txl_tf.FeedForward(9)(hidden)))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("cutoffs", [(), (4, 7)])
def test_in_a_fresh_process(tmp_path, cutoffs):
    model, token_ids = randomize(stack_of_layers(cutoffs)), tiny_tokens(3, 6)
    expected = model.predict(token_ids, verbose=0)
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "token_ids.npy", token_ids)
    randomize(model, seed=9).save_weights(tmp_path / "other.weights.h5")
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = forks().run(tmp_path / "program.py", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = np.load(tmp_path / "found.npz")
    np.testing.assert_allclose(found["outputs"], expected, rtol=1e-6, atol=1e-6)
    assert found["variables"] == len(model.trainable_variables)  # the head still shares the embedding
    np.testing.assert_allclose(np.load(tmp_path / "other.npy"), model.predict(token_ids, verbose=0), rtol=1e-6, atol=1e-6)
